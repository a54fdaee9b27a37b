// A Store for `hono-rate-limiter`, whose stores have the interface of express-rate-limit:
// `rateLimiter({ windowMs, limit, keyGenerator, store: new SluiceStore() })`.

export { type ClientHits, type HitCounterOptions, SluiceStore } from './express-rate-limit.ts'
