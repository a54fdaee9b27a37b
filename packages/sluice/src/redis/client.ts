// The client is the user's (`ioredis` or `redis`); the store works on connections of its own, made from it with options
// under which a command is sent at most once and fails at once when it cannot be: never queued, never sent again.

import { optionInvalid } from '../errors.ts'
import {
  connectIoRedisCluster,
  connectNodeRedisCluster,
  type IoRedisClusterLike,
  isIoRedisCluster,
  isNodeRedisCluster,
  type NodeRedisClusterLike,
} from './cluster-client.ts'
import {
  attempt,
  CONNECT_MS_MAX,
  PING_MS,
  reconnectPauseMs,
  SILENT_MS_MAX,
  SOCKET_LIMITS,
  watchErrors,
} from './unreachable.ts'

/** What the store needs of a connection. */
export type Connection = {
  /** Rejects when the command was not, or may not have been, carried out. */
  send(command: string, args: readonly string[], firstKey: string): Promise<unknown>
  /** Settles when the first attempt to connect has ended, well or not, or takes too long. */
  attempted: Promise<void>
  close(): Promise<void>
  /** What `INFO` says, of each primary. */
  infos(): Promise<readonly string[]>
  /** Of a Cluster: who serves a slot at present, as far as is known. Without it, one server has all keys. */
  readonly primaryOf?: (slot: number) => string
  /** The same as `send`, of a replica if there is one, for scripts that write nothing. Only where that is wanted. */
  readonly read?: Connection['send'] | undefined
}

/** The part of an ioredis client that is used. */
export type IoRedisLike = {
  readonly status: string
  duplicate(options?: object): IoRedisLike
  connect(): Promise<unknown>
  call(command: string, args: string[]): Promise<unknown>
  disconnect(): void
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** The part of a node-redis client that is used. */
export type NodeRedisLike = {
  readonly isOpen: boolean
  readonly options?: { readonly socket?: object | undefined } | undefined
  duplicate(options?: object): NodeRedisLike
  connect(): Promise<unknown>
  sendCommand(args: string[]): Promise<unknown>
  destroy(): void
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** The part of a node-redis client behind Sentinel that is used. */
export type NodeRedisSentinelLike = {
  readonly isOpen: boolean
  readonly options?: { readonly nodeClientOptions?: { readonly socket?: object | undefined } | undefined } | undefined
  getMasterNode(): unknown
  duplicate(options?: object): NodeRedisSentinelLike
  connect(): Promise<unknown>
  sendCommand(isReadonly: boolean, args: string[]): Promise<unknown>
  destroy(): unknown
  on(event: 'error', listener: (error: Error) => void): unknown
}

export type RedisClient =
  | IoRedisLike
  | NodeRedisLike
  | NodeRedisSentinelLike
  | IoRedisClusterLike
  | NodeRedisClusterLike

/** How often node-redis asks the sentinels who is the primary, should it have missed that they said so. */
const SENTINEL_SCAN_MS = 1000
/** How often ioredis asks a Redis that loads its data whether it is done. */
const LOADING_MS = 250

export function isCluster(client: RedisClient): boolean {
  return isIoRedisCluster(client) || isNodeRedisCluster(client)
}

/** `readsReplicas`: of a Cluster, what may be behind is asked of replicas. */
export function connect(client: RedisClient, readsReplicas: boolean): Connection {
  if (isIoRedisCluster(client)) return connectIoRedisCluster(client, readsReplicas)
  if (isNodeRedisCluster(client)) return connectNodeRedisCluster(client, readsReplicas)
  if (isNodeRedisSentinel(client)) return connectNodeRedisSentinel(client)
  if (isIoRedis(client)) return connectIoRedis(client)
  if (isNodeRedis(client)) return connectNodeRedis(client)
  throw optionInvalid('client', client, CLIENT_FIX)
}

const CLIENT_FIX = 'pass a client: new Redis(url) of "ioredis", or createClient({ url }) of "redis"'

/** A URL is no client: the store duplicates a client, and leaves closing it to its owner. */
export function requireClient(field: string, client: unknown): void {
  const isClient = typeof client === 'object' && client !== null && 'duplicate' in client
  if (!isClient) throw optionInvalid(field, client, CLIENT_FIX)
}

/**
 * ioredis sends commands that were in flight again after a reconnect unless told not to, and without
 * maxRetriesPerRequest their promises would never settle.
 */
function connectIoRedis(client: IoRedisLike): Connection {
  const own = client.duplicate({
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    enableAutoPipelining: false,
    keyPrefix: '',
    connectTimeout: CONNECT_MS_MAX,
    socketTimeout: SILENT_MS_MAX,
    retryStrategy: reconnectPauseMs,
    maxLoadingRetryTime: LOADING_MS,
  })
  const unreachable = watchErrors(own, 'Redis cannot be reached')
  return {
    send: (command, args) =>
      own.status === 'ready' ? own.call(command, args as string[]) : Promise.reject(unreachable()),
    infos: async () => [String(await own.call('INFO', []))],
    attempted: attempt(own.connect()),
    close: async () => own.disconnect(),
  }
}

/** node-redis rejects what was in flight when a connection breaks; only its queue for later has to be switched off. */
function connectNodeRedis(client: NodeRedisLike): Connection {
  const socket = { ...client.options?.socket, ...SOCKET_LIMITS }
  const own = client.duplicate({ disableOfflineQueue: true, pingInterval: PING_MS, socket })
  return {
    send: (command, args) => own.sendCommand([command, ...args]),
    infos: async () => [String(await own.sendCommand(['INFO']))],
    attempted: firstAttempt(own),
    close: async () => own.destroy(),
  }
}

/** Behind Sentinel it would send a command again whose connection broke: none of `maxCommandRediscovers`. */
function connectNodeRedisSentinel(client: NodeRedisSentinelLike): Connection {
  const { nodeClientOptions } = client.options ?? {}
  const own = client.duplicate({
    maxCommandRediscovers: 0,
    scanInterval: SENTINEL_SCAN_MS,
    nodeClientOptions: {
      ...nodeClientOptions,
      pingInterval: PING_MS,
      socket: { ...nodeClientOptions?.socket, ...SOCKET_LIMITS },
    },
  })
  return {
    send: (command, args) => own.sendCommand(false, [command, ...args]),
    infos: async () => [String(await own.sendCommand(false, ['INFO']))],
    attempted: firstAttempt(own),
    close: async () => void (await own.destroy()),
  }
}

/** connect() keeps trying, and so stays pending, while Redis is down: the first error ends the wait. */
function firstAttempt(own: Pick<NodeRedisLike, 'on' | 'connect'>): Promise<void> {
  const failed = new Promise<void>((resolve) => void own.on('error', () => resolve()))
  return attempt(Promise.race([own.connect(), failed]))
}

function isIoRedis(client: RedisClient): client is IoRedisLike {
  return 'status' in client && 'call' in client && 'duplicate' in client
}

function isNodeRedisSentinel(client: RedisClient): client is NodeRedisSentinelLike {
  return 'getMasterNode' in client && 'sendCommand' in client
}

function isNodeRedis(client: RedisClient): client is NodeRedisLike {
  return 'isOpen' in client && 'sendCommand' in client && 'duplicate' in client
}
