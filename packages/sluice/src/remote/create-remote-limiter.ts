// Connects a remote node to the service: follows its rules on one gRPC stream and exchanges units over the same
// connection.

import { LimiterError, optionInvalid } from '../errors.ts'
import { DEADLINE_MS } from '../failure/guard-store.ts'
import { type KnownFields, requireKnown } from '../known-fields.ts'
import { warn } from '../warning.ts'
import { Http2Transport, type Subscription, type TransportOptions } from './http2-transport.ts'
import { NodeRules } from './node-rules.ts'
import { type RemoteHealth, type RemoteLimiter, RemoteNode } from './remote-limiter.ts'
import { decodeState, encodeReport } from './state-message.ts'

export type RemoteLimiterOptions = {
  /** gRPC address of the service: `http://10.0.0.5:8081`, or `https://…` with TLS. */
  readonly url: string
  /** Token with the role `check`. Not needed by a service whose checks are open. */
  readonly token?: string
  /** CA of the service; certificate and key of this node for mutual TLS. As in node:tls. */
  readonly tls?: TransportOptions['tls']
  /** Deadline of a request to the service, after which `on_fail` of the rules decides. Default: 100. */
  readonly deadlineMs?: number
  /** Number of remote nodes, for `on_fail: local`. Default: 1. */
  readonly nodes?: number
  /** Longest wait for the first rules. Default: 5000. */
  readonly connectMs?: number
  /** Called when the circuit breaker of the service opens or closes. Default: warnings of the process. */
  readonly onTransition?: (transition: { readonly state: 'open' | 'closed' }) => void
  /** Called when `limiter.health` changes. Default: warnings of the process. */
  readonly onHealth?: (health: RemoteHealth) => void
}

const OPTIONS: KnownFields<RemoteLimiterOptions> = {
  url: true,
  token: true,
  tls: true,
  deadlineMs: true,
  nodes: true,
  connectMs: true,
  onTransition: true,
  onHealth: true,
}

const EXCHANGE_PATH = '/sluice.v1.Leases/Exchange'
const WATCH_PATH = '/sluice.v1.Leases/Watch'
const CONNECT_MS = 5000
const RETRY_MS = 500

/**
 * A limiter that decides from leases of the service. Resolves with the first rules; rejects with STORE_UNAVAILABLE if
 * they do not arrive in time, and with OPTION_INVALID if the service refuses the token.
 */
export async function createRemoteLimiter(options: RemoteLimiterOptions): Promise<RemoteLimiter> {
  checkOptions(options)
  const { url, token, tls, deadlineMs = DEADLINE_MS, nodes = 1, connectMs = CONNECT_MS } = options
  const transport = new Http2Transport({ url, token, tls })
  const watch = new Watch(transport)
  try {
    const first = await watch.start(connectMs)
    const changed = onChange(options.onHealth ?? warnOfHealth)
    const node = new RemoteNode(first, {
      exchange: (message) => transport.call(EXCHANGE_PATH, message),
      deadlineMs,
      nodes,
      onTransition: options.onTransition ?? warnOfOutage,
      onHealth: (health) => {
        watch.report(health)
        changed(health)
      },
      close: () => {
        watch.stop()
        transport.close()
      },
    })
    watch.follow(node, first)
    return node
  } catch (error) {
    watch.stop()
    transport.destroy()
    throw error
  }
}

/** Follows the state of the service; connects again when the stream ends. The last state stays in force meanwhile. */
class Watch {
  readonly #transport: Http2Transport
  #subscription: Subscription | undefined
  #stopped = false
  #retry: NodeJS.Timeout | undefined
  #latest: NodeRules | undefined
  /** Reason that the stream ended, and what could not be read, until the next state. */
  #ended: string | undefined
  #unreadable: unknown
  #node: RemoteNode | undefined
  #onFirst: { rules(rules: NodeRules): void; error(error: Error): void } | undefined

  constructor(transport: Http2Transport) {
    this.#transport = transport
  }

  start(connectMs: number): Promise<NodeRules> {
    return new Promise((resolve, reject) => {
      let last = 'no reply'
      const timer = setTimeout(() => {
        reject(new LimiterError('STORE_UNAVAILABLE', `no rules from the service within ${connectMs} ms: ${last}`))
      }, connectMs)
      const settle = (work: () => void) => {
        clearTimeout(timer)
        work()
      }
      this.#onFirst = {
        rules: (rules) => settle(() => resolve(rules)),
        error: (error) => {
          last = error.message
          if (error instanceof LimiterError && error.code === 'OPTION_INVALID') settle(() => reject(error))
        },
      }
      this.#connect()
    })
  }

  /** Passes on each event after the state `known`, including those that have happened since. */
  follow(node: RemoteNode, known: NodeRules): void {
    this.#onFirst = undefined
    this.#node = node
    node.cutOff(this.#ended)
    if (this.#latest !== undefined && this.#latest !== known) void node.follow(this.#latest)
    else this.report(node.health)
    if (this.#unreadable !== undefined) node.unreadable(this.#unreadable)
  }

  /** Tells the service, for its metrics. */
  report({ version, reasons }: RemoteHealth): void {
    this.#subscription?.send(encodeReport({ version, degraded: reasons.join('; ') }))
  }

  stop(): void {
    this.#stopped = true
    clearTimeout(this.#retry)
    this.#subscription?.close()
  }

  #connect(): void {
    if (this.#stopped) return
    const onEnd = (error: LimiterError | undefined) => {
      const ended = error ?? new LimiterError('STORE_UNAVAILABLE', 'the service ended it')
      this.#subscription = undefined
      this.#ended = `the stream of rules ended (${ended.message})`
      this.#onFirst?.error(ended)
      if (this.#stopped) return
      this.#node?.cutOff(this.#ended)
      this.#retry = setTimeout(() => this.#connect(), RETRY_MS)
    }
    this.#subscription = this.#transport.subscribe(
      WATCH_PATH,
      new Uint8Array(),
      (message) => this.#read(message),
      onEnd,
    )
  }

  #read(message: Uint8Array): void {
    this.#transport.accepted()
    this.#ended = undefined
    this.#node?.cutOff(undefined)
    try {
      this.#latest = new NodeRules(decodeState(message))
    } catch (error) {
      this.#unreadable = error
      this.#onFirst?.error(error as Error)
      this.#node?.unreadable(error)
      return
    }
    this.#unreadable = undefined
    this.#onFirst?.rules(this.#latest)
    void this.#node?.follow(this.#latest)
  }
}

function checkOptions(options: RemoteLimiterOptions): void {
  requireKnown(options, OPTIONS, '{ url, token }')
  const { url, token, deadlineMs = DEADLINE_MS, nodes = 1, connectMs = CONNECT_MS } = options
  if (typeof url !== 'string' || !/^https?:\/\/[^/]+\/?$/.test(url)) {
    throw optionInvalid('url', url, 'give the gRPC address of the service, such as http://127.0.0.1:8081')
  }
  if (token !== undefined && (typeof token !== 'string' || token === '')) {
    throw optionInvalid('token', token, 'give a token with the role check, or leave it out')
  }
  if (typeof deadlineMs !== 'number' || !(deadlineMs > 0 && deadlineMs < 60_000)) {
    throw optionInvalid('deadlineMs', deadlineMs, 'give milliseconds above 0')
  }
  if (!Number.isInteger(nodes) || nodes < 1) throw optionInvalid('nodes', nodes, 'give a whole number of at least 1')
  if (typeof connectMs !== 'number' || !(connectMs > 0)) {
    throw optionInvalid('connectMs', connectMs, 'give milliseconds above 0')
  }
}

function warnOfOutage({ state }: { readonly state: 'open' | 'closed' }): void {
  warn(state === 'open' ? 'SLUICE_SERVICE_DOWN' : 'SLUICE_SERVICE_UP')
}

/** Calls `handler` when the health differs from the last one. A node begins as ready. */
function onChange(handler: (health: RemoteHealth) => void): (health: RemoteHealth) => void {
  let last = ''
  return (health) => {
    const reasons = health.reasons.join('; ')
    if (reasons === last) return
    last = reasons
    handler(health)
  }
}

function warnOfHealth({ status, reasons }: RemoteHealth): void {
  if (status === 'ready') warn('SLUICE_REMOTE_READY')
  else warn('SLUICE_REMOTE_DEGRADED', reasons.join('; '))
}
