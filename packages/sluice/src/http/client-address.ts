// Address of the client: the peer of the connection, unless the peer is a trusted proxy. Clients can forge
// X-Forwarded-For, so only the entries that trusted proxies appended are read, from the right. There is no hop count: a
// request that takes a shorter route could choose its own address.

import { type Address, formatAddress, parseAddress } from '../canonical/address.ts'
import { type Cidr, matchesAny } from '../canonical/cidr.ts'

export type Connection = {
  /** The address at the other end of the connection; undefined for a Unix socket. */
  readonly peer: string | undefined
  /** Value of X-Forwarded-For. */
  readonly forwardedFor?: string | undefined
  /** Value of Forwarded (RFC 7239), used only without `forwardedFor`. Pass the header that your proxies write. */
  readonly forwarded?: string | undefined
}

/**
 * The first address from the right that is not a trusted proxy. A malformed element ends the walk at the last valid
 * address. Errs towards the proxy's shared bucket, never towards an address that the client chose.
 */
export function clientAddress(connection: Connection, trusted: readonly Cidr[]): string | undefined {
  const { peer } = connection
  if (peer === undefined || trusted.length === 0) return peer
  let address = parseAddress(peer)
  if (address === undefined || !matchesAny(trusted, address)) return peer
  for (const next of hopsFromRight(connection)) {
    if (next === undefined) break
    address = next
    if (!matchesAny(trusted, address)) break
  }
  return formatAddress(address)
}

function* hopsFromRight({ forwardedFor, forwarded }: Connection): Generator<Address | undefined> {
  if (forwardedFor !== undefined) for (const element of elementsFromRight(forwardedFor)) yield parseNode(element)
  else if (forwarded !== undefined) for (const element of elementsFromRight(forwarded)) yield forwardedNode(element)
}

/** Splits at every comma, also inside quotes: an open quote from the client must not hide what a proxy appended. */
function* elementsFromRight(list: string): Generator<string> {
  let end = list.length
  while (end >= 0) {
    const comma = end === 0 ? -1 : list.lastIndexOf(',', end - 1)
    yield list.slice(comma + 1, end)
    end = comma
  }
}

/** One element of X-Forwarded-For, or a node of Forwarded: an address or `[v6]`, each with an optional port. */
export function parseNode(text: string): Address | undefined {
  const node = text.trim()
  if (node.startsWith('[')) {
    const close = node.indexOf(']')
    return close > 0 && isPort(node.slice(close + 1)) ? parseIpv6(node.slice(1, close)) : undefined
  }
  const colon = node.indexOf(':')
  const portFollows = colon >= 0 && colon === node.lastIndexOf(':')
  if (!portFollows) return parseAddress(node)
  return isPort(node.slice(colon)) ? parseAddress(node.slice(0, colon)) : undefined
}

/** Brackets are for IPv6 notation only, IPv4-mapped addresses included. */
function parseIpv6(text: string): Address | undefined {
  return text.includes(':') ? parseAddress(text) : undefined
}

/** Empty, or `:` and one to five digits. */
function isPort(text: string): boolean {
  return text === '' || /^:\d{1,5}$/.test(text)
}

/** The `for` of one element; undefined if it is absent, given twice, or has unbalanced quotes. */
function forwardedNode(element: string): Address | undefined {
  const values = element.split(';').flatMap((pair) => forValue(pair.trim()))
  const [value] = values
  if (values.length !== 1 || value === undefined) return undefined
  if (!value.startsWith('"')) return value.includes('"') ? undefined : parseNode(value)
  return value.length > 1 && value.endsWith('"') ? parseNode(value.slice(1, -1)) : undefined
}

function forValue(pair: string): string[] {
  return pair.slice(0, 4).toLowerCase() === 'for=' ? [pair.slice(4)] : []
}
