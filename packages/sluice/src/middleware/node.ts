// Rate limiting for a bare server of node:http, HTTP/2 included:
// `createServer(rateLimit({ limit: 100, window: '1m' })((req, res) => res.end('hello')))`.

import { createNodeGate, type NodeRequest, type NodeResponse } from './node-gate.ts'
import { type RateLimitOptions, requireHandler, requireOptions } from './options.ts'

export type NodeListener<Req, Res> = (req: Req, res: Res) => unknown

/** `In` is what the server hands over, which is at least what the options ask for. */
export type Limited<Req> = <In extends Req, Res extends NodeResponse>(
  listener: NodeListener<In, Res>,
) => NodeListener<In, Res>

const CALL = 'createServer(rateLimit({ limit, window })(listener))'

export function rateLimit<Req extends NodeRequest>(options: RateLimitOptions<Req>): Limited<Req> {
  requireOptions(options, CALL)
  const gate = createNodeGate(options)
  return (listener) => {
    requireHandler('listener', listener, CALL)
    return async function rateLimit(req, res) {
      try {
        const verdict = await gate(req, req, res)
        if (verdict?.allowed === false) return
      } catch (error) {
        // Nobody else would answer, and a rejection that nobody handles would end the process.
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
