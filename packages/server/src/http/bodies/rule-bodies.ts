// Parses bodies with rules, as JSON or YAML. Rejects invalid UTF-8, which decoding would replace silently, even in ids.

import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ProblemError, problem } from '../../problems/problem.ts'
import { utf8Text } from '../../rules/source-text.ts'
import { jsonBodyParser } from './json-body.ts'

export const YAML_TYPE = 'application/yaml'
const YAML_TYPES = [YAML_TYPE, 'application/x-yaml', 'text/yaml', 'text/x-yaml']
const JSON_TYPES = ['application/json', 'application/merge-patch+json']

/** An unparsed YAML body. */
export class YamlBody {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** Applies to the routes of one scope. Without `yaml`, a YAML body is answered 415. */
export function parseRuleBodies(scope: FastifyInstance, { yaml }: { readonly yaml: boolean }): void {
  scope.removeAllContentTypeParsers()
  const parseAs = 'buffer'
  scope.addContentTypeParser(JSON_TYPES, { parseAs }, (request, bytes, done) => {
    let text: string
    try {
      text = textOf(bytes)
    } catch (error) {
      done(error as ProblemError)
      return
    }
    jsonBodyParser(request, text, done)
  })
  if (!yaml) return
  scope.addContentTypeParser(YAML_TYPES, { parseAs }, async (_request: FastifyRequest, bytes: string | Buffer) => {
    return new YamlBody(textOf(bytes))
  })
}

function textOf(bytes: string | Buffer): string {
  const text = utf8Text(bytes as Buffer) // because of parseAs
  if (text !== undefined) return text
  const fieldError = { field: 'body', value: undefined, fix: 'send it as UTF-8' }
  throw new ProblemError(problem('REQUEST_INVALID', 'The body is not valid UTF-8.', [fieldError]))
}
