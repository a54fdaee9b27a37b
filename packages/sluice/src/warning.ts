// Process warnings about likely misconfiguration and about outages, each with its fix. Emitted once per process, or
// once per outage.

export type WarningCode =
  | 'SLUICE_MEMORY_PER_PROCESS'
  | 'SLUICE_NO_ADDRESS'
  | 'SLUICE_NO_SUBJECT'
  | 'SLUICE_UNTRUSTED_PROXY'
  | 'SLUICE_APP_PROXY'
  | 'SLUICE_COUNTED_TWICE'
  | 'SLUICE_UNITS_KEPT'
  | 'SLUICE_LIMITER_PER_REQUEST'
  | 'SLUICE_CHECK_FAILED'
  | 'SLUICE_STORE_DOWN'
  | 'SLUICE_STORE_UP'
  | 'SLUICE_SLOT_GROUPS'
  | 'SLUICE_SERVICE_DOWN'
  | 'SLUICE_SERVICE_UP'
  | 'SLUICE_REMOTE_DEGRADED'
  | 'SLUICE_REMOTE_READY'
  | 'SLUICE_REMOTE_TOKEN'

const WARNINGS: Readonly<Record<WarningCode, string>> = {
  SLUICE_MEMORY_PER_PROCESS:
    'this is one of several processes, each of which counts in its own memory, so clients get the limit in each. ' +
    'Pass a shared store, such as redisStore.',
  SLUICE_NO_ADDRESS:
    'the address of a client is unknown; depending on the rule, all such clients share one limit or have none. ' +
    'Pass `key` or `subject`, or `ip` to the middlewares that have it.',
  SLUICE_NO_SUBJECT:
    'a rule counts by user, API key or tenant, but the middleware has no `subject`, so the rule skips every request. ' +
    'Pass subject: (request) => ({ user }), or set on_missing of the rule to by_ip or refuse.',
  SLUICE_UNTRUSTED_PROXY:
    'a request has an X-Forwarded-For or Forwarded header, which is ignored because no proxy is trusted: all clients ' +
    'behind a proxy share one limit. ' +
    'Pass the addresses of your proxies, trustProxy: ["10.0.0.0/8"], or [] if you have none.',
  SLUICE_APP_PROXY:
    'the application trusts proxies (`trust proxy` of Express, `trustProxy` of Fastify, `proxy` of Koa), and the ' +
    'limiter does not read that setting: all clients behind a proxy share one limit. ' +
    'Pass the addresses of your proxies, trustProxy: ["10.0.0.0/8"], or [] if you have none.',
  SLUICE_COUNTED_TWICE:
    'two middlewares with the same limiter checked the same request, so it counts twice. ' +
    'Register only one of them, or give each its own limiter.',
  SLUICE_UNITS_KEPT:
    'a middleware refused a request that an earlier one had admitted, and the earlier one does not refund it. ' +
    'Put both limits into one limiter, which is all or nothing, or pass refund: [429] to the earlier middleware; ' +
    'refund: [] disables refunds and this warning.',
  SLUICE_LIMITER_PER_REQUEST:
    'middlewares are created while requests are served, and each handles only one request, so nothing is limited. ' +
    'Call rateLimit() once, outside of the handler.',
  SLUICE_CHECK_FAILED:
    'a request could not be checked and got an error; no handler of the application gets errors of this middleware.',
  SLUICE_STORE_DOWN:
    'Redis does not answer, so on_fail of each rule applies until it does. ' +
    'Pass onTransition to redisStore to handle this yourself.',
  SLUICE_STORE_UP: 'Redis answers again and decides; on_fail no longer applies.',
  SLUICE_SLOT_GROUPS:
    'other nodes use a different number of slot groups on this Cluster, so clients get the limit twice. ' +
    'Pass the same slotGroups to redisStore on every node.',
  SLUICE_SERVICE_DOWN:
    'the service does not answer, so leases and then on_fail of each rule apply until it does. ' +
    'Pass onTransition to createRemoteLimiter to handle this yourself.',
  SLUICE_SERVICE_UP: 'the service answers again; on_fail no longer applies.',
  SLUICE_REMOTE_DEGRADED:
    'the remote limiter may not decide by the newest rules of the service. ' +
    'Pass onHealth to createRemoteLimiter to handle this yourself.',
  SLUICE_REMOTE_READY: 'the remote limiter decides by the newest rules of the service again.',
  SLUICE_REMOTE_TOKEN:
    'the service refuses the token that it accepted before, so leases and then on_fail of each rule apply. ' +
    'Restart this node with a valid token of the role check.',
}

/** Middlewares created while serving and used once; above this, each request is assumed to create its own. */
const SINGLE_USE_MAX = 10

const emitted = new Set<WarningCode>()
let serving = false
let singleUse = 0

export function warnOnce(code: WarningCode, about?: string): void {
  if (emitted.has(code)) return
  emitted.add(code)
  warn(code, about)
}

/** Warns on every call. `about` names the affected component, or the error. */
export function warn(code: WarningCode, about = ''): void {
  const message = `sluice: ${about === '' ? '' : `${about}: `}${WARNINGS[code]}`
  if (printsWarnings()) process.emitWarning(message, { code })
  else console.warn(`[${code}] ${message}`)
}

/** Workers have the function, which only emits an event there. */
function printsWarnings(): boolean {
  const { navigator } = globalThis as { readonly navigator?: { readonly userAgent: string } }
  if (navigator?.userAgent === 'Cloudflare-Workers') return false
  return typeof process !== 'undefined' && typeof process.emitWarning === 'function'
}

export function wasWarned(code: WarningCode): boolean {
  return emitted.has(code)
}

/** Detects middlewares created per request. Call it on creation, and the returned function for each request. */
export function watchUse(): () => void {
  const late = serving
  let requests = 0
  if (late) singleUse += 1
  if (singleUse > SINGLE_USE_MAX) warnOnce('SLUICE_LIMITER_PER_REQUEST')
  return () => {
    serving = true
    requests += 1
    if (late && requests === 2) singleUse -= 1
  }
}

/** Whether this process is a worker of a Node.js cluster, or one of several instances under PM2. */
export function isOneOfSeveralProcesses(): boolean {
  if (typeof process === 'undefined') return false
  // Not imported: other runtimes lack it, and a worker's NODE_UNIQUE_ID is deleted once it runs.
  const cluster = process.getBuiltinModule?.('node:cluster') as { readonly isWorker?: boolean } | undefined
  return cluster?.isWorker === true || pm2Instance() !== '0'
}

/** PM2 numbers instances from 0, even a single one. */
function pm2Instance(): string {
  if (!mayReadVariable('NODE_APP_INSTANCE')) return '0'
  return process.env?.NODE_APP_INSTANCE ?? '0' // some runtimes have a process without an environment
}

/** False in Deno without `--allow-env`, which throws, or asks the user at a terminal, if a variable is read. */
function mayReadVariable(variable: string): boolean {
  const { Deno: deno } = globalThis as { Deno?: Deno }
  return deno === undefined || deno.permissions?.querySync({ name: 'env', variable }).state === 'granted'
}

type Deno = {
  readonly permissions?: { querySync(permission: { name: 'env'; variable: string }): { readonly state: string } }
}
