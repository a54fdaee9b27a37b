// Clients of a Redis Cluster, handed in by the user. They follow the slots (MOVED, ASK), after which nothing was run;
// what they may not do is send a command again that could have been carried out.

import type { Connection } from './client.ts'
import { attempt, CONNECT_MS_MAX, reconnectPauseMs, SILENT_MS_MAX, SOCKET_LIMITS, watchErrors } from './unreachable.ts'

/** The part of an ioredis Cluster that is used. */
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

/** A connection that can hold back what is written to it. */
type Corkable = { cork(): void; uncork(): void }

/** The part of a node-redis cluster that is used. */
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

/** How often the map of slots is looked at anew: a primary that went away unheard is noticed by it. */
const SLOTS_REFRESH_MS = 1000
/** ioredis would go to and fro for long when a script needs keys from both sides of a move; the batcher splits it. */
const REDIRECTIONS_MAX = 4

export function isIoRedisCluster(client: object): client is IoRedisClusterLike {
  return 'isCluster' in client && client.isCluster === true
}

export function isNodeRedisCluster(client: object): client is NodeRedisClusterLike {
  return 'sendCommand' in client && 'slots' in client && 'masters' in client
}

/**
 * Without `retryDelayOnFailover: 0` a command whose connection broke would be sent again. The queue for later has to
 * be on, or commands would fail while the connection to a node that just got a slot is made; so it is used for that
 * alone, and not while the Cluster as a whole is away.
 */
export function connectIoRedisCluster(client: IoRedisClusterLike, readsReplicas: boolean): Connection {
  const own = client.duplicate([], {
    lazyConnect: true,
    enableOfflineQueue: true,
    enableAutoPipelining: false,
    scaleReads: readsReplicas ? 'slave' : 'master', // of commands that write nothing: `read` below
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
 * A batch is cut up by slot, so one turn makes many commands. Held back until all of them are written, they cost one
 * system call for each primary; node-redis does that by itself.
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
    process.nextTick(uncork) // after all that was asked in this turn
  }
}

/** A primary that is silent though its connection stands is noticed by the pings that it does not answer. */
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

/** A script that may not write: replicas run it, and ioredis, if it is in small letters, knows so. */
function readOnly(command: string): string {
  return `${command.toLowerCase()}_ro`
}

/** Answers of a slot that is being moved, the last one where a client has followed several: none ran anything. */
const NOT_HERE = /(^|Last error: ReplyError: )(TRYAGAIN|ASK|MOVED) /

/** Whether a script was not run, because its slot is being moved and its keys are not on one side. */
export function isDivided(error: unknown): boolean {
  return error instanceof Error && NOT_HERE.test(error.message)
}

/** A broken connection shows in the command that fails; the event only has to be listened to. */
function ignore(): void {}
