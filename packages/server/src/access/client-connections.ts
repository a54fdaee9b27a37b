// Caps what one client address can hold of a port, so that it cannot lock out all others: connections from the accept
// on (a TLS handshake holds one too), and calls of gRPC. Each port counts for itself, in each process. Socket files and
// trusted proxies, which carry many clients, have no cap of their own. A port that closes ends all of its connections.

import type { Server, Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { canonicalAddress, matchesAny, parseAddress } from 'sluice/http'
import { type Log, oncePerMinute } from '../log.ts'
import type { Settings } from '../settings/settings.ts'

/** Cap that a connection met: that of its address, or that of the port. */
export type RefusedBy = 'address' | 'port'

/** Connections and calls of one address. */
export type AddressUse = {
  connections: number
  calls: number
  readonly isCapped: boolean
}

/** Longest TLS handshake, from the accept to its end. */
export const HANDSHAKE_MS_MAX = 10_000

/** Share of all calls that is kept for addresses which hold less than it. */
const KEPT_SHARE = 0.1

const FIXES: Readonly<Record<RefusedBy, string>> = {
  address: 'find addresses with many connections (ss -tn); raise --max-connections-per-address for a shared proxy',
  port: 'find addresses with many connections (ss -tn); raise --max-connections, for gRPC --grpc-max-connections',
}

export type ConnectionSettings = Pick<Settings, 'maxConnectionsPerAddress' | 'trustedProxies' | 'ipv6Prefix'>

export class ClientConnections {
  readonly port: 'http' | 'grpc' | 'gateway'
  /** Connections closed on arrival. */
  readonly refused: Record<RefusedBy, number> = { address: 0, port: 0 }
  readonly #settings: ConnectionSettings
  readonly #uses = new Map<string, AddressUse>()
  readonly #open = new Set<Socket>()
  readonly #report: Readonly<Record<RefusedBy, () => void>>

  constructor(port: ClientConnections['port'], settings: ConnectionSettings, log: Pick<Log, 'event'>) {
    this.port = port
    this.#settings = settings
    const report = (by: RefusedBy) =>
      oncePerMinute((refused) => log.event('connections_refused', { port, refused, cap: by, fix: FIXES[by] }))
    this.#report = { address: report('address'), port: report('port') }
  }

  /** Closes connections beyond the caps before the protocol of the server sees them. Call once per server. */
  watch(server: Server): void {
    const listeners = server.listeners('connection')
    server.removeAllListeners('connection')
    server.on('connection', (socket: Socket) => {
      if (!this.#admit(socket)) return
      for (const listener of listeners) listener.call(server, socket)
    })
    server.on('drop', () => this.#refuse('port')) // beyond maxConnections
  }

  /** Waits until the server has closed; ends what is still open after `ms`, unfinished handshakes included. */
  async endWithin(ms: number, closed: Promise<unknown>): Promise<void> {
    const timer = setTimeout(() => {
      for (const socket of this.#open) socket.destroy()
    }, ms)
    await closed.finally(() => clearTimeout(timer))
    while (this.#open.size > 0) await turn() // `close` of the last connection follows that of the server
  }

  /** Connections and calls of the address of an admitted connection. */
  useOf(remoteAddress: string | undefined): AddressUse {
    return this.#uses.get(this.#keyOf(remoteAddress)) ?? { connections: 0, calls: 0, isCapped: false }
  }

  #admit(socket: Socket): boolean {
    const { remoteAddress } = socket
    const key = this.#keyOf(remoteAddress)
    const use = this.#uses.get(key) ?? { connections: 0, calls: 0, isCapped: this.#isCapped(remoteAddress) }
    if (use.isCapped && use.connections >= this.#settings.maxConnectionsPerAddress) {
      socket.destroy()
      this.#refuse('address')
      return false
    }
    use.connections += 1
    this.#uses.set(key, use)
    this.#open.add(socket)
    socket.once('close', () => {
      this.#open.delete(socket)
      use.connections -= 1
      if (use.connections === 0) this.#uses.delete(key)
    })
    return true
  }

  /** Socket files, and sockets that are already closed, share an empty key. */
  #keyOf(remoteAddress = ''): string {
    return canonicalAddress(remoteAddress, this.#settings.ipv6Prefix) ?? ''
  }

  #isCapped(remoteAddress = ''): boolean {
    const address = parseAddress(remoteAddress)
    return address !== undefined && !matchesAny(this.#settings.trustedProxies, address)
  }

  #refuse(by: RefusedBy): void {
    this.refused[by] += 1
    this.#report[by]()
  }
}

/**
 * Whether a call must be refused. The last tenth of the calls of a process is for addresses that hold less than that,
 * so one address cannot use up all of them.
 */
export function callsUsedUp(calls: number, use: AddressUse, callsMax: number): boolean {
  const kept = Math.ceil(callsMax * KEPT_SHARE)
  return calls >= callsMax || (use.isCapped && use.calls >= kept && calls >= callsMax - kept)
}
