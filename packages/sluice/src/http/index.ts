// sluice/http: what an adapter for any framework is made of.

export { type Address, canonicalAddress, formatAddress, IPV6_PREFIX_DEFAULT, parseAddress } from './address.ts'
export { type Cidr, cidrContains, matchesAny, parseCidr } from './cidr.ts'
export { type Connection, clientAddress } from './client-address.ts'
export { headerFacts } from './header-facts.ts'
export {
  HEADER_STYLES,
  type HeaderOptions,
  type HeaderRecord,
  type HeaderStyle,
  joinedHeaders,
  rateLimitHeaders,
  retryAfterSeconds,
} from './headers.ts'
export { METHODS } from './method.ts'
export { canonicalPath } from './path.ts'
export { policyName } from './policy.ts'
export { PROBLEM_TYPE, type QuotaExceeded, quotaExceeded } from './problem.ts'
export { withEnd, withHeaders } from './response.ts'
export {
  type HttpRequest,
  holdsPermit,
  type JudgeOptions,
  judge,
  NO_PROXIES,
  type Proxies,
  subjectOf,
  type Verdict,
  verdictOf,
} from './verdict.ts'
