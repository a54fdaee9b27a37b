// Parses JSON bodies, and reports the position of a syntax error. Keys such as `__proto__` become own properties, which
// the schemas reject by name.

import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ProblemError, problem } from '../../problems/problem.ts'
import { jsonErrorPosition } from '../../text/json-error-position.ts'

const SHOWN_AROUND = 20

export function parseJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, text, done) => {
    let body: unknown
    try {
      body = parseJsonBody(request, text as string) // because of parseAs
    } catch (error) {
      return done(error as ProblemError, undefined)
    }
    done(null, body)
  })
}

/** DELETE has no body, although some clients announce one. */
export function parseJsonBody({ method }: FastifyRequest, text: string): unknown {
  return method === 'DELETE' && text === '' ? undefined : parseJsonText(text)
}

function parseJsonText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw malformed(text)
  }
}

function malformed(text: string): ProblemError {
  const at = jsonErrorPosition(text)
  const line = text.slice(0, at).split('\n').length
  const value = text.slice(Math.max(0, at - SHOWN_AROUND), at + SHOWN_AROUND)
  const position = `line ${line}, character ${at - text.lastIndexOf('\n', at - 1)}`
  const fix = at === text.length ? 'send the complete text: unexpected end' : `fix the JSON at ${position}`
  return new ProblemError(
    problem('JSON_MALFORMED', `The body is not JSON (${position}).`, [{ field: 'body', value, fix }]),
  )
}
