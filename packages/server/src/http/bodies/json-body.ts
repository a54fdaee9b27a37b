// Text of a body → value. JSON that cannot be read is told with the place of the mistake. Keys such as `__proto__` need
// no special care: they come out as own properties, which the schemas refuse by name.

import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ProblemError, problem } from '../../problems/problem.ts'
import { jsonMistakeAt } from '../../text/json-mistake.ts'

const SHOWN_AROUND = 20

export function parseJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, text, done) => {
    let body: unknown
    try {
      body = parseJsonBody(request, text as string) // parseAs asks for a string
    } catch (error) {
      return done(error as ProblemError, undefined)
    }
    done(null, body)
  })
}

/** To delete something takes no body, though some clients announce one. */
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
  const at = jsonMistakeAt(text)
  const line = text.slice(0, at).split('\n').length
  const value = text.slice(Math.max(0, at - SHOWN_AROUND), at + SHOWN_AROUND)
  const place = `line ${line}, character ${at - text.lastIndexOf('\n', at - 1)}`
  const fix = at === text.length ? 'send all of it: it ends too early' : `make it JSON: see ${place}`
  return new ProblemError(
    problem('JSON_MALFORMED', `The body is not JSON (${place}).`, [{ field: 'body', value, fix }]),
  )
}
