// IP addresses compared by their bits. Every notation of an address gives the same canonical text, so a client cannot
// get a second bucket by spelling, and two clients never share one. Strict, and linear in the length of the text.

import { hexDigit } from './hex.ts'

/** Groups of 16 bits: two for IPv4 (also when written as IPv4-mapped IPv6), eight for IPv6. */
export type Address = readonly number[]

/** A site usually gets a whole /64, so one client can choose among 2^64 addresses: they count as one. */
export const IPV6_PREFIX_DEFAULT = 64

const IPV4_GROUPS = 2
const IPV6_GROUPS = 8
const MAPPED_TEXT = '::ffff:'
const DOT = 46
const COLON = 58

/** Undefined for anything but an address. `parseNode` handles brackets and ports. */
export function parseAddress(text: string): Address | undefined {
  const ipv4 = readIpv4(text, 0, text.length)
  if (ipv4 >= 0) return ipv4Groups(ipv4)
  const end = zoneStart(text)
  const groups = end < 0 ? undefined : readIpv6(text, end)
  return groups !== undefined && isMapped(groups) ? groups.slice(6) : groups
}

/** Text that identifies the client: dotted IPv4, or the IPv6 network of `ipv6Prefix` bits (`2001:db8::/64`). */
export function canonicalAddress(text: string, ipv6Prefix: number = IPV6_PREFIX_DEFAULT): string | undefined {
  // Fast path of nearly every request: valid dotted text is already canonical, because leading zeros are rejected. A
  // dual-stack socket, which Node.js listens on, adds the mapped prefix.
  const dotted = text.startsWith(MAPPED_TEXT) ? MAPPED_TEXT.length : 0
  if (readIpv4(text, dotted, text.length) >= 0) return text.slice(dotted)
  const address = parseAddress(text)
  if (address === undefined) return undefined
  if (isIpv4(address) || ipv6Prefix === 128) return formatAddress(address)
  return `${formatAddress(maskAddress(address, ipv6Prefix))}/${ipv6Prefix}`
}

/** RFC 5952: lower case, no leading zeros, the first longest run of two or more zero groups as `::`. */
export function formatAddress(address: Address): string {
  const [high = 0, low = 0] = address
  if (isIpv4(address)) return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`
  const gap = longestZeroRun(address)
  if (gap.length < 2) return hexGroups(address, 0, IPV6_GROUPS)
  return `${hexGroups(address, 0, gap.start)}::${hexGroups(address, gap.start + gap.length, IPV6_GROUPS)}`
}

export function isIpv4(address: Address): boolean {
  return address.length === IPV4_GROUPS
}

/** The address with every bit after the first `prefix` bits cleared. */
export function maskAddress(address: Address, prefix: number): Address {
  return address.map((group, index) => group & groupMask(prefix - 16 * index))
}

/** Mask that keeps the first `bits` bits of a group; `bits` may lie outside 0…16. */
export function groupMask(bits: number): number {
  if (bits >= 16) return 0xffff
  return bits <= 0 ? 0 : (0xffff << (16 - bits)) & 0xffff
}

/** The 32 bits of `text[start, end)`, or -1. Rejects octets with a leading zero: some parsers read them as octal. */
function readIpv4(text: string, start: number, end: number): number {
  let value = 0
  let octet = -1
  let dots = 0
  for (let at = start; at < end; at++) {
    const code = text.charCodeAt(at)
    if (code === DOT) {
      if (octet < 0 || dots === 3) return -1
      value = value * 256 + octet
      octet = -1
      dots++
      continue
    }
    const digit = code - 48
    if (digit < 0 || digit > 9 || octet === 0) return -1
    octet = octet < 0 ? digit : octet * 10 + digit
    if (octet > 255) return -1
  }
  return dots === 3 && octet >= 0 ? value * 256 + octet : -1
}

function ipv4Groups(ipv4: number): Address {
  return [ipv4 >>> 16, ipv4 & 0xffff]
}

/** Start of the zone (`%eth0`), which names an interface of this host, not a client. -1 if the zone is empty. */
function zoneStart(text: string): number {
  const percent = text.indexOf('%')
  if (percent < 0) return text.length
  return percent === text.length - 1 ? -1 : percent
}

function readIpv6(text: string, end: number): Address | undefined {
  const groups: number[] = []
  let gap = -1
  let at = 0
  if (text.startsWith('::')) {
    gap = 0
    at = 2
  }
  while (at < end) {
    const groupEnd = hexEnd(text, at, end)
    if (groupEnd < end && text.charCodeAt(groupEnd) === DOT) {
      const ipv4 = readIpv4(text, at, end)
      return ipv4 < 0 ? undefined : fillGap(groups.concat(ipv4Groups(ipv4)), gap)
    }
    if (groupEnd === at || groups.length === IPV6_GROUPS) return undefined
    groups.push(hexValue(text, at, groupEnd))
    if (groupEnd === end) break
    at = groupEnd + 1
    if (text.charCodeAt(groupEnd) !== COLON || at === end) return undefined
    if (text.charCodeAt(at) === COLON) {
      if (gap >= 0) return undefined
      gap = groups.length
      at++
    }
  }
  return fillGap(groups, gap)
}

/** End of the run of at most four hexadecimal digits that starts at `start`. */
function hexEnd(text: string, start: number, end: number): number {
  let at = start
  while (at < end && at < start + 4 && hexDigit(text.charCodeAt(at)) >= 0) at++
  return at
}

function hexValue(text: string, start: number, end: number): number {
  let value = 0
  for (let at = start; at < end; at++) value = value * 16 + hexDigit(text.charCodeAt(at))
  return value
}

/**
 * Eight groups, with the gap (`::`, at least one group) filled with zeros; undefined if they do not add up to eight.
 */
function fillGap(groups: readonly number[], gap: number): Address | undefined {
  const missing = IPV6_GROUPS - groups.length
  if (gap < 0) return missing === 0 ? groups : undefined
  if (missing < 1) return undefined
  const filled: number[] = []
  for (let at = 0; at < IPV6_GROUPS; at++) {
    const zero = at >= gap && at < gap + missing
    filled.push(zero ? 0 : (groups[at < gap ? at : at - missing] ?? 0))
  }
  return filled
}

function hexGroups(groups: Address, start: number, end: number): string {
  let text = ''
  for (let at = start; at < end; at++) text += `${at === start ? '' : ':'}${(groups[at] ?? 0).toString(16)}`
  return text
}

/** `::ffff:0:0/96`: the IPv4 address that a dual-stack socket reports as IPv6. */
function isMapped(groups: Address): boolean {
  const [a, b, c, d, e, f] = groups
  return f === 0xffff && a === 0 && b === 0 && c === 0 && d === 0 && e === 0
}

function longestZeroRun(groups: Address): { start: number; length: number } {
  const longest = { start: 0, length: 0 }
  let length = 0
  for (let at = 0; at < groups.length; at++) {
    length = groups[at] === 0 ? length + 1 : 0
    if (length <= longest.length) continue
    longest.start = at + 1 - length
    longest.length = length
  }
  return longest
}
