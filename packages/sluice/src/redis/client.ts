// Connections of the store, duplicated from the user's client (`ioredis` or `redis`) with options under which a command
// is sent at most once, and fails immediately without a connection: never queued, never retried.

import { systemTimers } from '../clock.ts'
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

/** The interface that the store needs. */
export type Connection = {
  /** A rejection means that the command did not run, or that its outcome is unknown. */
  send(command: string, args: readonly string[], firstKey: string): Promise<unknown>
  /** Settles after the first attempt to connect: successful, failed or timed out. */
  attempted: Promise<void>
  close(): Promise<void>
  /** `INFO` of each primary. */
  infos(): Promise<readonly string[]>
  /** Last known address of the primary that serves a slot. Undefined unless Redis is a Cluster. */
  readonly primaryOf?: (slot: number) => string
  /** `send` to a replica, for scripts that write nothing. Undefined unless replicas are read. */
  readonly read?: Connection['send'] | undefined
}

/** The members of an ioredis client that the store uses. */
export type IoRedisLike = {
  readonly status: string
  readonly options?: SentinelOptions | undefined
  duplicate(options?: object): IoRedisLike
  connect(): Promise<unknown>
  call(command: string, args: string[]): Promise<unknown>
  subscribe(...channels: string[]): Promise<unknown>
  disconnect(reconnect?: boolean): void
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'message', listener: (channel: string, message: string) => void): unknown
}

/** Options of an ioredis client behind Sentinel. */
type SentinelOptions = {
  readonly sentinels?: readonly { readonly host?: string; readonly port?: number }[] | null | undefined
  readonly name?: string | null | undefined
  readonly sentinelUsername?: string | null | undefined
  readonly sentinelPassword?: string | null | undefined
  readonly sentinelTLS?: object | undefined
}

/** The members of a node-redis client that the store uses. */
export type NodeRedisLike = {
  readonly isOpen: boolean
  readonly options?: { readonly socket?: object | undefined } | undefined
  duplicate(options?: object): NodeRedisLike
  connect(): Promise<unknown>
  sendCommand(args: string[]): Promise<unknown>
  destroy(): void
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** The members of a node-redis Sentinel client that the store uses. */
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

/** The members of a node-redis pool that the store uses. */
export type NodeRedisPoolLike = {
  readonly isOpen: boolean
  execute(task: Borrow): Promise<void>
}

/** The members of a Sentinel client of node-redis 5 that the store uses: that version cannot duplicate it. */
export type NodeRedis5SentinelLike = {
  readonly isOpen: boolean
  getMasterNode(): unknown
  _execute(isReadonly: boolean, task: Borrow): Promise<void>
  on(event: 'topology-change', listener: (change: { readonly type: string }) => void): unknown
  off(event: 'topology-change', listener: (change: { readonly type: string }) => void): unknown
}

/** Receives a connection of a client that has no `duplicate` itself. */
type Borrow = (client: NodeRedisLike) => Promise<void>

export type RedisClient =
  | IoRedisLike
  | NodeRedisLike
  | NodeRedisSentinelLike
  | NodeRedis5SentinelLike
  | NodeRedisPoolLike
  | IoRedisClusterLike
  | NodeRedisClusterLike

/** Interval at which node-redis queries the sentinels for the primary: it does not hear their announcement. */
const SENTINEL_SCAN_MS = 250
/** Channel on which a sentinel announces a new primary, and its default port. */
const SWITCHED = '+switch-master'
const SENTINEL_PORT = 26_379
/** Interval at which ioredis polls a Redis that is loading its data. */
const LOADING_MS = 250

export function isCluster(client: RedisClient): boolean {
  return isIoRedisCluster(client) || isNodeRedisCluster(client)
}

/** `readsReplicas`: adds `read` to the connection of a Cluster. */
export function connect(client: RedisClient, readsReplicas: boolean): Connection {
  if (isIoRedisCluster(client)) return connectIoRedisCluster(client, readsReplicas)
  if (isNodeRedisCluster(client)) return connectNodeRedisCluster(client, readsReplicas)
  if (isNodeRedisSentinel(client)) return connectNodeRedisSentinel(client)
  if (isNodeRedis5Sentinel(client)) return connectNodeRedis5Sentinel(client)
  if (isNodeRedisPool(client)) return connectNodeRedisPool(client)
  if (isIoRedis(client)) return connectIoRedis(client)
  if (isNodeRedis(client)) return connectNodeRedis(client)
  throw optionInvalid('client', client, CLIENT_FIX)
}

const CLIENT_FIX = 'pass a client: new Redis(url) from "ioredis", or createClient({ url }) from "redis"'

/** Rejects URLs and other values that are not clients. */
export function requireClient(field: string, client: unknown): void {
  if (typeof client !== 'object' || client === null) throw optionInvalid(field, client, CLIENT_FIX)
  const isClient = 'duplicate' in client || isNodeRedis5Sentinel(client) || isNodeRedisPool(client)
  if (!isClient) throw optionInvalid(field, client, CLIENT_FIX)
}

/**
 * By default ioredis resends commands in flight after a reconnect; without maxRetriesPerRequest their promises would
 * never settle.
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
  const unfollow = followSentinels(client, () => own.disconnect(true))
  return {
    send: (command, args) =>
      own.status === 'ready' ? own.call(command, args as string[]) : Promise.reject(unreachable()),
    infos: async () => [String(await own.call('INFO', []))],
    attempted: attempt(own.connect()),
    close: async () => {
      unfollow()
      own.disconnect()
    },
  }
}

/**
 * Calls `onSwitch` when a sentinel announces a new primary. In a planned failover the old one stays writable for about
 * 10 s: no command fails, and what it counts is lost. The detector of ioredis would print an error for each sentinel
 * that is down. Returns a function that ends it.
 */
function followSentinels(client: IoRedisLike, onSwitch: () => void): () => void {
  const { sentinels, name, sentinelUsername, sentinelPassword, sentinelTLS } = client.options ?? {}
  const subscribers = (sentinels ?? []).map(({ host = '127.0.0.1', port = SENTINEL_PORT }) => {
    const subscriber = client.duplicate({
      sentinels: null,
      name: null,
      host,
      port,
      username: sentinelUsername ?? null,
      password: sentinelPassword ?? null,
      tls: sentinelTLS,
      db: 0,
      lazyConnect: false,
      enableOfflineQueue: true,
      enableReadyCheck: false,
      maxRetriesPerRequest: null, // subscribes whenever the sentinel answers
      connectTimeout: CONNECT_MS_MAX,
      retryStrategy: reconnectPauseMs,
    })
    subscriber.on('error', ignore)
    subscriber.on('message', (_channel, message) => {
      if (message.startsWith(`${name} `)) onSwitch()
    })
    subscriber.subscribe(SWITCHED).catch(ignore)
    return subscriber
  })
  return () => {
    for (const subscriber of subscribers) subscriber.disconnect()
  }
}

function ignore(): void {}

/** node-redis rejects commands in flight when a connection breaks; only its offline queue has to be disabled. */
function connectNodeRedis(client: NodeRedisLike): Connection {
  const own = duplicateNodeRedis(client)
  return {
    send: (command, args) => own.sendCommand([command, ...args]),
    infos: async () => [String(await own.sendCommand(['INFO']))],
    attempted: firstAttempt(own),
    close: async () => own.destroy(),
  }
}

function duplicateNodeRedis(client: NodeRedisLike): NodeRedisLike {
  const socket = { ...client.options?.socket, ...SOCKET_LIMITS }
  return client.duplicate({ disableOfflineQueue: true, pingInterval: PING_MS, socket })
}

/** A pool has no `duplicate`, but its connections do. The caller connects the pool; until then commands fail. */
function connectNodeRedisPool(pool: NodeRedisPoolLike): Connection {
  return connectBorrowed(pool, (task) => pool.execute(task)).connection
}

/**
 * A Sentinel client of node-redis 5 has no `duplicate`, but its connection to the primary does. After a failover, or an
 * error that may be one, the next connection is borrowed. The caller connects the client; until then commands fail.
 */
function connectNodeRedis5Sentinel(client: NodeRedis5SentinelLike): Connection {
  const { connection, renew } = connectBorrowed(client, (task) => client._execute(false, task), true)
  const onChange = ({ type }: { readonly type: string }) => {
    if (type === 'MASTER_CHANGE') renew()
  }
  client.on('topology-change', onChange)
  return {
    ...connection,
    close: () => {
      client.off('topology-change', onChange)
      return connection.close()
    },
  }
}

/** `isDroppedOnError`: a connection with an error is replaced, instead of reconnecting to the same address. */
function connectBorrowed(
  client: { readonly isOpen: boolean },
  lend: (task: Borrow) => Promise<void>,
  isDroppedOnError = false,
): { readonly connection: Connection; renew(): void } {
  let own: NodeRedisLike | undefined
  let isBorrowing = false
  let isClosed = false
  let lastError = new Error('the Redis client is not connected: call connect() on it')
  let settleFirst = ignore
  const first = new Promise<void>((resolve) => {
    settleFirst = resolve
  })
  const drop = () => {
    if (own?.isOpen === true) own.destroy()
    own = undefined
  }
  const adopt = (fresh: NodeRedisLike) => {
    own = fresh
    fresh.on('error', (error) => {
      lastError = error
      if (isDroppedOnError && own === fresh) drop()
    })
    void firstAttempt(fresh).then(settleFirst)
  }
  const borrow = () => {
    if (own !== undefined || isBorrowing || !client.isOpen) return
    isBorrowing = true
    lend(async (lent) => {
      if (!isClosed) adopt(duplicateNodeRedis(lent))
    })
      .catch((error: Error) => {
        lastError = error
      })
      .finally(() => {
        isBorrowing = false
      })
  }
  const stop = systemTimers.every(reconnectPauseMs(), borrow)
  borrow()
  const send = (args: string[]) => (own === undefined ? Promise.reject(lastError) : own.sendCommand(args))
  return {
    renew: () => {
      drop()
      borrow()
    },
    connection: {
      send: (command, args) => send([command, ...args]),
      infos: async () => [String(await send(['INFO']))],
      attempted: attempt(first),
      close: async () => {
        isClosed = true
        stop()
        drop()
      },
    },
  }
}

/** Behind Sentinel, node-redis resends commands whose connection broke, unless maxCommandRediscovers is 0. */
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

/** connect() stays pending while Redis is down, so the first error ends the wait. */
function firstAttempt(own: Pick<NodeRedisLike, 'on' | 'connect'>): Promise<void> {
  const failed = new Promise<void>((resolve) => void own.on('error', () => resolve()))
  return attempt(Promise.race([own.connect(), failed]))
}

function isIoRedis(client: RedisClient): client is IoRedisLike {
  return 'status' in client && 'call' in client && 'duplicate' in client
}

function isNodeRedisSentinel(client: RedisClient): client is NodeRedisSentinelLike {
  return 'getMasterNode' in client && 'duplicate' in client
}

function isNodeRedis5Sentinel(client: object): client is NodeRedis5SentinelLike {
  return 'getMasterNode' in client && '_execute' in client && !('duplicate' in client)
}

function isNodeRedisPool(client: object): client is NodeRedisPoolLike {
  return 'totalClients' in client && 'execute' in client
}

function isNodeRedis(client: RedisClient): client is NodeRedisLike {
  return 'isOpen' in client && 'sendCommand' in client && 'duplicate' in client
}
