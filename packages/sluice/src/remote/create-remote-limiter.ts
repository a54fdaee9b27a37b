// Connects a remote node to the service: follows its rules on one gRPC stream and exchanges units over the same
// connection.

import { LimiterError, optionInvalid } from '../errors.ts'
import { DEADLINE_MS } from '../failure/guard-store.ts'
import { type KnownFields, requireKnown } from '../known-fields.ts'
import type { Limiter } from '../limiter-api.ts'
import { warn } from '../warning.ts'
import { Http2Transport, type TransportOptions } from './http2-transport.ts'
import { NodeRules } from './node-rules.ts'
import { RemoteNode } from './remote-limiter.ts'
import { decodeState } from './state-message.ts'

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
}

const OPTIONS: KnownFields<RemoteLimiterOptions> = {
  url: true,
  token: true,
  tls: true,
  deadlineMs: true,
  nodes: true,
  connectMs: true,
  onTransition: true,
}

const EXCHANGE_PATH = '/sluice.v1.Leases/Exchange'
const WATCH_PATH = '/sluice.v1.Leases/Watch'
const CONNECT_MS = 5000
const RETRY_MS = 500

/**
 * A limiter that decides from leases of the service. Resolves with the first rules; rejects with STORE_UNAVAILABLE if
 * they do not arrive in time, and with OPTION_INVALID if the service refuses the token.
 */
export async function createRemoteLimiter(options: RemoteLimiterOptions): Promise<Limiter> {
  checkOptions(options)
  const { url, token, tls, deadlineMs = DEADLINE_MS, nodes = 1, connectMs = CONNECT_MS } = options
  const transport = new Http2Transport({ url, token, tls })
  const watch = new Watch(transport)
  try {
    const first = await watch.start(connectMs)
    const node = new RemoteNode(first, {
      exchange: (message) => transport.call(EXCHANGE_PATH, message),
      deadlineMs,
      nodes,
      onTransition: options.onTransition ?? warnOfOutage,
      close: () => {
        watch.stop()
        transport.close()
      },
    })
    watch.follow((rules) => node.follow(rules), first)
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
  #stop: (() => void) | undefined
  #stopped = false
  #retry: NodeJS.Timeout | undefined
  #latest: NodeRules | undefined
  #onRules: ((rules: NodeRules) => Promise<void>) | undefined

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
      this.#connect(
        (rules) => settle(() => resolve(rules)),
        (error) => {
          last = error.message
          if (error.code === 'OPTION_INVALID') settle(() => reject(error))
        },
      )
    })
  }

  /** Passes on each state after `known`, including one that has arrived since. */
  follow(onRules: (rules: NodeRules) => Promise<void>, known: NodeRules): void {
    this.#onRules = onRules
    if (this.#latest !== undefined && this.#latest !== known) this.#pass(this.#latest)
  }

  stop(): void {
    this.#stopped = true
    clearTimeout(this.#retry)
    this.#stop?.()
  }

  #connect(onRules: (rules: NodeRules) => void, onError: (error: LimiterError) => void): void {
    if (this.#stopped) return
    const message = (received: Uint8Array) => {
      try {
        this.#latest = new NodeRules(decodeState(received))
      } catch (error) {
        warn('SLUICE_REMOTE_RULES', String(error))
        return
      }
      this.#transport.accepted()
      onRules(this.#latest)
      this.#pass(this.#latest)
    }
    const subscription = this.#transport.subscribe(WATCH_PATH, new Uint8Array(), message, (error) => {
      onError(error ?? new LimiterError('STORE_UNAVAILABLE', 'the service ended the stream of rules'))
      if (!this.#stopped) this.#retry = setTimeout(() => this.#connect(onRules, onError), RETRY_MS)
    })
    this.#stop = () => subscription.close()
  }

  #pass(rules: NodeRules): void {
    this.#onRules?.(rules).catch((error) => warn('SLUICE_REMOTE_RULES', String(error)))
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
