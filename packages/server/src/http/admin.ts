// Who may use the admin endpoints: whoever knows the token.

import { createHash, timingSafeEqual } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { ProblemError, problem } from './problem.ts'

/** Goes before validation: strangers learn nothing from it. */
export function requireToken(token: string): (request: FastifyRequest) => Promise<void> {
  return async ({ headers }) => {
    if (isAuthorized(headers.authorization, token)) return
    throw new ProblemError(problem('UNAUTHORIZED', 'Send the admin token: "Authorization: Bearer <token>".'))
  }
}

/** Hashes are compared, so that neither length nor content of the token shows in the time it takes. */
function isAuthorized(header: string | undefined, token: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(header ?? ''), digest(`Bearer ${token}`))
}
