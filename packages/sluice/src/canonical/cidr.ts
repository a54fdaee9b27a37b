// CIDR ranges. IPv4 and IPv6 never match each other; a range that cannot match any address is rejected.

import { type Address, groupMask, isIpv4, maskAddress, parseAddress } from './address.ts'

export type Cidr = { readonly network: Address; readonly prefix: number }

const MAPPED_BITS = 96

/** `10.0.0.0/8`, `2001:db8::/32`, or one address. Bits after the prefix are cleared. Undefined for anything else. */
export function parseCidr(text: string): Cidr | undefined {
  const slash = text.indexOf('/')
  const base = slash < 0 ? text : text.slice(0, slash)
  const address = parseAddress(base)
  if (address === undefined) return undefined
  const bits = 16 * address.length
  const prefix = slash < 0 ? bits : parsePrefix(text.slice(slash + 1), mappedBits(base, address))
  if (prefix === undefined || prefix > bits) return undefined
  return { network: maskAddress(address, prefix), prefix }
}

export function cidrContains({ network, prefix }: Cidr, address: Address): boolean {
  if (network.length !== address.length) return false
  return network.every((group, index) => group === ((address[index] ?? 0) & groupMask(prefix - 16 * index)))
}

export function matchesAny(cidrs: readonly Cidr[], address: Address): boolean {
  return cidrs.some((cidr) => cidrContains(cidr, address))
}

/** `::ffff:10.0.0.0/104` is `10.0.0.0/8`: the prefix of a mapped notation counts 96 bits that the address lacks. */
function mappedBits(base: string, address: Address): number {
  return isIpv4(address) && base.includes(':') ? MAPPED_BITS : 0
}

/** One to three digits without a leading zero. Rejects a prefix below `offset`: the range would span both families. */
function parsePrefix(text: string, offset: number): number | undefined {
  if (text.length === 0 || text.length > 3 || (text.length > 1 && text.startsWith('0'))) return undefined
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code < 48 || code > 57) return undefined
  }
  const prefix = Number(text) - offset
  return prefix < 0 ? undefined : prefix
}
