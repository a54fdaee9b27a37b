// ShouldRateLimit, the method of Envoy's rate limit service v3.

import { andThen } from 'sluice'
import type { DecideRateLimit } from '../../envoy/rate-limit-service.ts'
import type { GrpcAccess } from '../access.ts'
import type { UnaryMethod } from '../method.ts'
import { expiresMsOf } from '../rate-limiter/rate-limiter.ts'
import { readRateLimitRequest } from './request-reader.ts'
import { writeRateLimitResponse } from './response-writer.ts'

export const SHOULD_RATE_LIMIT = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit'

export function shouldRateLimit(decide: DecideRateLimit, access: Pick<GrpcAccess, 'require'>): UnaryMethod {
  return {
    kind: 'unary',
    path: SHOULD_RATE_LIMIT,
    admit: (call) => access.require(call, 'check'),
    handle: (message, call) =>
      andThen(decide(readRateLimitRequest(message), expiresMsOf(call)), writeRateLimitResponse),
  }
}
