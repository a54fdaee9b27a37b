// `sluice/http`: building blocks of an adapter for any framework.

export {
  type Address,
  canonicalAddress,
  formatAddress,
  IPV6_PREFIX_DEFAULT,
  parseAddress,
} from '../canonical/address.ts'
export { type Cidr, cidrContains, matchesAny, parseCidr } from '../canonical/cidr.ts'
export { METHODS } from '../canonical/method.ts'
export { canonicalPath } from '../canonical/path.ts'
export { type Connection, clientAddress } from './client-address.ts'
export {
  checkToResponse,
  type DecisionResponse,
  type DecisionResponseOptions,
  holdsPermit,
  responseFromDecision,
} from './decision-response.ts'
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
export { policyName } from './policy-name.ts'
export { type Banned, banned, PROBLEM_TYPE, type QuotaExceeded, quotaExceeded } from './problem.ts'
export { BYPASS_HEADER, type HttpRequest, NO_PROXIES, type Proxies, subjectFromRequest } from './request.ts'
export { withEnd, withHeaders } from './response.ts'
