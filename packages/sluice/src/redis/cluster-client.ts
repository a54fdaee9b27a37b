// Connections to a Redis Cluster, duplicated from the user's client. The clients follow MOVED and ASK, which prove that
// the command did not run; they must not resend a command that may have run.

import type { Connection } from './client.ts'
import { attempt, CONNECT_MS_MAX, reconnectPauseMs, SILENT_MS_MAX, SOCKET_LIMITS, watchErrors } from './unreachable.ts'

/** The members of an ioredis Cluster that the store uses. */
export type IoRedisClusterLike = {
  readonly status: string
  readonly isCluster: boolean
  readonly options?: { readonly redisOptions?: object | undefined } | undefined
  /** Addresses that serve a slot, the primary first. */
  readonly slots: readonly (readonly string[])[]
  duplicate(nodes?: never[], options?: object): IoRedisClusterLike
  connect(): Promise<unknown>
  call(command: string, args: string[]): Promise<unknown>
  nodes(role: 'master'): readonly { info(): Promise<string>; readonly stream?: Corkable }[]
  disconnect(): void
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** A socket that can buffer writes. */
type Corkable = { cork(): void; uncork(): void }

/** The members of a node-redis cluster that the store uses. */
export type NodeRedisClusterLike = {
  readonly isOpen: boolean
  readonly slots: readonly ({ readonly master: { readonly address: string } } | undefined)[]
  readonly _options: { readonly defaults?: { readonly socket?: object } | undefined }
  duplicate(options?: object): NodeRedisClusterLike
  connect(): Promise<unknown>
  sendCommand(firstKey: string, isReadonly: boolean, args: string[]): Promise<unknown>
  readonly masters: readonly object[]
  nodeClient(node: never): Promise<{ sendCommand(args: string[]): Promise<unknown> }>
  destroy(): void
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** Refresh interval of the slot map, to notice a primary that vanished silently. */
const SLOTS_REFRESH_MS = 1000
/** Limits how long ioredis follows redirections for a script whose keys are split by a migrating slot. */
const REDIRECTIONS_MAX = 4

export function isIoRedisCluster(client: object): client is IoRedisClusterLike {
  return 'isCluster' in client && client.isCluster === true
}

export function isNodeRedisCluster(client: object): client is NodeRedisClusterLike {
  return 'sendCommand' in client && 'slots' in client && 'masters' in client
}

/**
 * `retryDelayOnFailover: 0` disables the resending of commands whose connection broke. The offline queue is needed
 * while ioredis connects to a node that just got a slot; `call` does not use it while the whole Cluster is unreachable.
 */
export function connectIoRedisCluster(client: IoRedisClusterLike, readsReplicas: boolean): Connection {
  const own = client.duplicate([], {
    lazyConnect: true,
    enableOfflineQueue: true,
    enableAutoPipelining: false,
    scaleReads: readsReplicas ? 'slave' : 'master', // for read-only commands: `read` below
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: 0,
    maxRedirections: REDIRECTIONS_MAX,
    slotsRefreshInterval: SLOTS_REFRESH_MS,
    keyPrefix: '',
    clusterRetryStrategy: reconnectPauseMs,
    redisOptions: { ...client.options?.redisOptions, connectTimeout: CONNECT_MS_MAX, socketTimeout: SILENT_MS_MAX },
  })
  const unreachable = watchErrors(own, 'no node of the Cluster can be reached')
  const cork = corkOnce(() => own.nodes('master').flatMap(({ stream }) => stream ?? []))
  const call = async (command: string, args: readonly string[]) => {
    if (own.status !== 'ready') throw unreachable()
    return own.call(command, args as string[])
  }
  return {
    send: (command, args) => {
      cork()
      return call(command, args)
    },
    infos: () => Promise.all(own.nodes('master').map((node) => node.info())),
    attempted: attempt(own.connect()),
    close: async () => own.disconnect(),
    primaryOf: (slot) => own.slots[slot]?.[0] ?? '',
    read: readsReplicas ? (command, args) => call(readOnly(command), args) : undefined,
  }
}

/**
 * One turn sends many commands, because batches are split by slot. Corking the sockets until all are written costs one
 * system call per primary. node-redis does that by itself.
 */
function corkOnce(streams: () => readonly Corkable[]): () => void {
  let corked: readonly Corkable[] = []
  const uncork = () => {
    for (const stream of corked) stream.uncork()
    corked = []
  }
  return () => {
    if (corked.length > 0) return
    corked = streams()
    for (const stream of corked) stream.cork()
    process.nextTick(uncork) // after all requests of this turn
  }
}

/** Pings detect a primary that is silent while its connection is open. */
export function connectNodeRedisCluster(client: NodeRedisClusterLike, readsReplicas: boolean): Connection {
  const { defaults } = client._options
  const own = client.duplicate({
    defaults: {
      ...defaults,
      disableOfflineQueue: true,
      pingInterval: SLOTS_REFRESH_MS / 2,
      socket: { ...defaults?.socket, ...SOCKET_LIMITS },
    },
    useReplicas: readsReplicas,
    topologyRefreshOnReconnectionAttemptStrategy: SLOTS_REFRESH_MS,
  })
  own.on('error', ignore)
  return {
    send: (command, args, firstKey) => own.sendCommand(firstKey, false, [command, ...args]),
    infos: () =>
      Promise.all(
        own.masters.map(async (node) => String(await (await own.nodeClient(node as never)).sendCommand(['INFO']))),
      ),
    attempted: attempt(own.connect()),
    close: async () => own.destroy(),
    primaryOf: (slot) => own.slots[slot]?.master.address ?? '',
    read: readsReplicas
      ? (command, args, firstKey) => own.sendCommand(firstKey, true, [readOnly(command), ...args])
      : undefined,
  }
}

/** The read-only variant of a script command, for replicas. ioredis recognises it in lower case only. */
function readOnly(command: string): string {
  return `${command.toLowerCase()}_ro`
}

/** Errors of a migrating slot, including the last one after too many redirections. The script did not run. */
const REDIRECTION = /(^|Last error: ReplyError: )(TRYAGAIN|ASK|MOVED) /

/** Whether a script did not run because its slot is migrating and its keys are not all on one side. */
export function isMigrating(error: unknown): boolean {
  return error instanceof Error && REDIRECTION.test(error.message)
}

/** Failed commands report broken connections; the event only needs a listener. */
function ignore(): void {}
