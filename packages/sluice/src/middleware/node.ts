// Rate limiting for node:http and node:http2 servers:
// `createServer(rateLimit({ limit: 100, window: '1m' })((req, res) => res.end('hello')))`.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { PROBLEM_TYPE } from '../http/problem.ts'
import { warnOnce } from '../warning.ts'
import { createNodeCheck, type NodeRequest, type NodeResponse } from './node-check.ts'
import { type RateLimitOptions, requireHandler, requireOptions } from './options.ts'

export type NodeListener<Req, Res> = (req: Req, res: Res) => unknown

/** The types of requests and responses are inferred from the server: node:http or HTTP/2. */
export type Limited = <Req extends NodeRequest = IncomingMessage, Res extends NodeResponse = ServerResponse>(
  listener: NodeListener<Req, Res>,
) => NodeListener<Req | NodeRequest, Res | NodeResponse>

const CALL = 'createServer(rateLimit({ limit, window })(listener))'

export function rateLimit<Req extends NodeRequest = IncomingMessage>(options: RateLimitOptions<Req>): Limited {
  requireOptions(options, CALL)
  const check = createNodeCheck(options)
  return <Served extends NodeRequest, Res extends NodeResponse>(listener: NodeListener<Served, Res>) => {
    requireHandler('listener', listener, CALL)
    return async function rateLimit(req: Served | NodeRequest, res: Res | NodeResponse) {
      try {
        const result = await check(req as Req, req, res) // the server passes requests of the declared type
        if (result?.allowed === false) return
      } catch (error) {
        // No framework handles the error here, and an unhandled rejection would end the process.
        return fail(error, res)
      }
      return listener(req as Served, res as Res) // those that the server infers, or that the listener declares
    }
  }
}

/** The response has no details, which may be about the program. */
function fail(error: unknown, res: NodeResponse): void {
  const status = statusOf(error)
  if (status >= 500) warnOnce('SLUICE_CHECK_FAILED', error instanceof Error ? error.message : String(error))
  res.statusCode = status
  if (!res.headersSent) res.setHeader('Content-Type', PROBLEM_TYPE)
  res.end(JSON.stringify({ type: 'about:blank', title: TITLES[status], status }))
}

/** Titles of the statuses of the library; an error of the application may have any status. */
const TITLES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
}

function statusOf(error: unknown): number {
  const status = (error as { readonly status?: unknown } | undefined)?.status
  return typeof status === 'number' ? status : 500
}
