// Detects addresses that only this machine can reach.

import { matchesAny, parseAddress, parseCidr } from 'sluice/http'

const LOOPBACK = ['127.0.0.0/8', '::1'].map(parseCidr).filter((cidr) => cidr !== undefined)

/** Host names other than localhost may resolve to any address. */
export function isLoopback(host: string): boolean {
  const address = parseAddress(host)
  return address === undefined ? host === 'localhost' : matchesAny(LOOPBACK, address)
}
