// A Store for `hono-rate-limiter`, whose stores are those of express-rate-limit by another name:
// `rateLimiter({ windowMs, limit, keyGenerator, store: new SluiceStore() })`.

export { type ClientHits, type HitCounterOptions, SluiceStore } from './express-rate-limit.ts'
