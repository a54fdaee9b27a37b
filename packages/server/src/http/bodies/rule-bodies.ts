// Bodies that hold rules: JSON or YAML, whose bytes have to be UTF-8. Anything else would be mended in silence, and the
// name of a rule would not be what its author wrote.

import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ProblemError, problem } from '../../problems/problem.ts'
import { utf8Text } from '../../rules/source-text.ts'
import { parseJsonBody } from './json-body.ts'

export const YAML_TYPE = 'application/yaml'
const YAML_TYPES = [YAML_TYPE, 'application/x-yaml', 'text/yaml', 'text/x-yaml']
const JSON_TYPES = ['application/json', 'application/merge-patch+json']

/** A body that is still text. */
export class YamlBody {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** For the routes of one scope only. Without `yaml`, that is a 415. */
export function parseRuleBodies(scope: FastifyInstance, { yaml }: { readonly yaml: boolean }): void {
  scope.removeAllContentTypeParsers()
  const parseAs = 'buffer'
  scope.addContentTypeParser(JSON_TYPES, { parseAs }, async (request: FastifyRequest, bytes: string | Buffer) => {
    return parseJsonBody(request, textOf(bytes))
  })
  if (!yaml) return
  scope.addContentTypeParser(YAML_TYPES, { parseAs }, async (_request: FastifyRequest, bytes: string | Buffer) => {
    return new YamlBody(textOf(bytes))
  })
}

function textOf(bytes: string | Buffer): string {
  const text = utf8Text(bytes as Buffer) // parseAs asks for one
  if (text !== undefined) return text
  const fault = { field: 'body', value: undefined, fix: 'send it as UTF-8' }
  throw new ProblemError(problem('REQUEST_INVALID', 'The bytes of the body are not UTF-8.', [fault]))
}
