// Parses JSON bodies, long ones in slices, and reports the position of a syntax error. Keys such as `__proto__` become
// own properties, which the schemas reject by name.

import type { FastifyInstance, FastifyRequest } from 'fastify'
import { inSlices } from 'sluice'
import { invalidField, ProblemError, problem } from '../../problems/problem.ts'
import { jsonErrorPosition, lineAndColumn } from '../../text/json-error-position.ts'
import { JsonMalformed, JsonTooComplex, parsingJson, SHORT_JSON_MAX } from '../../text/long-json.ts'

const SHOWN_AROUND = 20

export function parseJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'string' }, jsonBodyParser)
}

/** Content type parser. Short bodies are parsed without a promise: checks are many. */
export function jsonBodyParser(request: FastifyRequest, given: string | Buffer, done: Done): void {
  const text = given as string // because of parseAs
  if (text.length > SHORT_JSON_MAX) {
    parseLong(text).then((body) => done(null, body), done)
    return
  }
  let body: unknown
  try {
    body = parseJsonBody(request, text)
  } catch (error) {
    done(error as ProblemError)
    return
  }
  done(null, body)
}

type Done = (error: Error | null, body?: unknown) => void

/** DELETE has no body, although some clients announce one. */
function parseJsonBody({ method }: FastifyRequest, text: string): unknown {
  if (method === 'DELETE' && text === '') return undefined
  try {
    return JSON.parse(text)
  } catch {
    throw malformed(text, jsonErrorPosition(text))
  }
}

async function parseLong(text: string): Promise<unknown> {
  try {
    return await inSlices(parsingJson(text))
  } catch (error) {
    if (error instanceof JsonMalformed) throw malformed(text, error.at)
    if (error instanceof JsonTooComplex) throw invalidField(error.field, error.value, error.message)
    throw error
  }
}

function malformed(text: string, at: number): ProblemError {
  const { line, column } = lineAndColumn(text, at)
  const value = text.slice(Math.max(0, at - SHOWN_AROUND), at + SHOWN_AROUND)
  const position = `line ${line}, character ${column}`
  const fix = at === text.length ? 'send the complete text: unexpected end' : `fix the JSON at ${position}`
  return new ProblemError(
    problem('JSON_MALFORMED', `The body is not JSON (${position}).`, [{ field: 'body', value, fix }]),
  )
}
