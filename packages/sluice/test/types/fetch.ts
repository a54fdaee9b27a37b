// Compiled, never run: functions of the options get the Request, and handlers the further arguments of their runtime.

import { createLimiter } from 'sluice'
import { rateLimit } from 'sluice/fetch'

type Env = { ADDRESS: string }

const limit = { limit: 100, window: '1m' }
const limiter = createLimiter({ rules: [] })
const limited = rateLimit({ ...limit, key: (request) => request.headers.get('x-api-key') })

export const plain: (request: Request) => Promise<Response> = limited((request) => new Response(request.url))
export const worker = { fetch: limited((request, env: Env) => new Response(request.url + env.ADDRESS)) }
export const byAddress = rateLimit({ limiter, ip: (_request, env: Env) => env.ADDRESS })(() => new Response())

// @ts-expect-error: requests have no such property
rateLimit({ ...limit, key: (request) => request.nothing })
