// Warnings about a set-up that works, but not as its author thinks, and about outages. Each says the fix. Those about
// the set-up are given once per process, those about an outage once per outage.

export type WarningCode =
  | 'SLUICE_MEMORY_PER_PROCESS'
  | 'SLUICE_NO_ADDRESS'
  | 'SLUICE_NO_SUBJECT'
  | 'SLUICE_UNTRUSTED_PROXY'
  | 'SLUICE_APP_PROXY'
  | 'SLUICE_COUNTED_TWICE'
  | 'SLUICE_UNITS_KEPT'
  | 'SLUICE_LIMITER_PER_REQUEST'
  | 'SLUICE_STORE_DOWN'
  | 'SLUICE_STORE_UP'

const WARNINGS: Readonly<Record<WarningCode, string>> = {
  SLUICE_MEMORY_PER_PROCESS:
    'this is one of several processes, and each counts in its own memory, so clients get the limit in each. ' +
    'Pass a store that they share, redisStore for example.',
  SLUICE_NO_ADDRESS:
    'the address of a client is unknown, so all such clients share one limit, or have none, as the rule says. ' +
    'Pass `key` or `subject`, or `ip` to the middlewares that have it.',
  SLUICE_NO_SUBJECT:
    'a rule counts by user, API key or tenant, and the middleware has no `subject`, so the rule skips every request. ' +
    'Pass subject: (request) => ({ user }), or set on_missing of the rule to by_ip or refuse.',
  SLUICE_UNTRUSTED_PROXY:
    'a request came with X-Forwarded-For or Forwarded, which is not believed: clients of a proxy share one limit. ' +
    'Pass the addresses of your proxies, trustProxy: ["10.0.0.0/8"], or [] if you have none.',
  SLUICE_APP_PROXY:
    'the application trusts proxies (`trust proxy` of Express, `trustProxy` of Fastify, `proxy` of Koa), and the ' +
    'limiter does not read that setting: clients of a proxy share one limit. ' +
    'Pass the addresses of your proxies, trustProxy: ["10.0.0.0/8"], or [] if you have none.',
  SLUICE_COUNTED_TWICE:
    'two middlewares of one limiter have judged the same request, so it counts twice. ' +
    'Register one of them, or one limiter for each.',
  SLUICE_UNITS_KEPT:
    'a middleware refused a request that another one had admitted, and that one keeps what the request took. ' +
    'Put both limits into one limiter, which is all or nothing, or pass refund: [429] to the first; ' +
    'refund: [] keeps the units on purpose.',
  SLUICE_LIMITER_PER_REQUEST:
    'middlewares are made while requests are served, and each sees one request only, so nothing is limited. ' +
    'Call rateLimit() once, outside of the handler.',
  SLUICE_STORE_DOWN:
    'Redis does not answer, so on_fail of each rule decides until it does. ' +
    'Pass onTransition to redisStore to handle this yourself.',
  SLUICE_STORE_UP: 'Redis answers again, and decides.',
}

/** So many middlewares may be made late and be used once before that looks like one per request. */
const FLEETING_MAX = 10

const given = new Set<WarningCode>()
let serving = false
let fleeting = 0

export function warnOnce(code: WarningCode): void {
  if (given.has(code)) return
  given.add(code)
  warn(code)
}

/** Warns each time. `about` names the part of the set-up that is meant. */
export function warn(code: WarningCode, about = ''): void {
  const message = `sluice: ${about === '' ? '' : `${about}: `}${WARNINGS[code]}`
  if (typeof process !== 'undefined' && typeof process.emitWarning === 'function')
    process.emitWarning(message, { code })
  else console.warn(`[${code}] ${message}`)
}

export function wasWarned(code: WarningCode): boolean {
  return given.has(code)
}

/** Call it when a middleware is made, and what it returns for each request: tells apart those that live for one. */
export function watchUse(): () => void {
  const late = serving
  let requests = 0
  if (late) fleeting += 1
  if (fleeting > FLEETING_MAX) warnOnce('SLUICE_LIMITER_PER_REQUEST')
  return () => {
    serving = true
    requests += 1
    if (late && requests === 2) fleeting -= 1
  }
}

/** Whether this process is a worker of a Node.js cluster, or one of several instances under PM2. */
export function isOneOfSeveral(): boolean {
  if (typeof process === 'undefined') return false
  // Asked for rather than imported: other runtimes do not have it, and a worker's NODE_UNIQUE_ID is gone once it runs.
  const cluster = process.getBuiltinModule?.('node:cluster') as { readonly isWorker?: boolean } | undefined
  // PM2 numbers its instances from 0, also when there is only one.
  const { NODE_APP_INSTANCE = '0' } = process.env ?? {} // some runtimes have a process without it
  return cluster?.isWorker === true || NODE_APP_INSTANCE !== '0'
}
