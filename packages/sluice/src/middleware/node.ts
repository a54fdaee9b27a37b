// Rate limiting for node:http and node:http2 servers:
// `createServer(rateLimit({ limit: 100, window: '1m' })((req, res) => res.end('hello')))`.

import { createNodeCheck, type NodeRequest, type NodeResponse } from './node-check.ts'
import { type RateLimitOptions, requireHandler, requireOptions } from './options.ts'

export type NodeListener<Req, Res> = (req: Req, res: Res) => unknown

/** `In` is the request type of the server, which extends the one of the options. */
export type Limited<Req> = <In extends Req, Res extends NodeResponse>(
  listener: NodeListener<In, Res>,
) => NodeListener<In, Res>

const CALL = 'createServer(rateLimit({ limit, window })(listener))'

export function rateLimit<Req extends NodeRequest>(options: RateLimitOptions<Req>): Limited<Req> {
  requireOptions(options, CALL)
  const check = createNodeCheck(options)
  return (listener) => {
    requireHandler('listener', listener, CALL)
    return async function rateLimit(req, res) {
      try {
        const result = await check(req, req, res)
        if (result?.allowed === false) return
      } catch (error) {
        // No framework handles the error here, and an unhandled rejection would end the process.
        res.statusCode = statusOf(error)
        res.end('')
        return
      }
      return listener(req, res)
    }
  }
}

function statusOf(error: unknown): number {
  const status = (error as { readonly status?: unknown } | undefined)?.status
  return typeof status === 'number' ? status : 500
}
