// /api/v1/rate-limit/rules: the rules in force, for reading. They come from a file, which is the one place to change
// them: a write is refused and told where that is.

import type { FastifyInstance } from 'fastify'
import { type Limiter, plainRule } from 'sluice'
import { JSON_TYPE } from './check.ts'
import { ProblemError, problem } from './problem.ts'
import { answers, problemAnswers } from './schemas.ts'

export const RULES_PATH = '/api/v1/rate-limit/rules'

const ANSWER = {
  type: 'object',
  required: ['version', 'rules'],
  properties: {
    version: { type: 'integer', description: 'Grows with each change.' },
    rules: { type: 'array', items: { type: 'object', additionalProperties: true } },
  },
}

export function rulesRoutes(app: FastifyInstance, limiter: Limiter, rulesPath: string): void {
  const list = listText(limiter)
  const schema = { operationId: 'listRules', summary: 'The rules in force', tags: ['rules'], response: answers(ANSWER) }
  app.get(RULES_PATH, { schema, config: { access: 'viewer' } }, (_request, reply) => {
    reply.header('content-type', JSON_TYPE).send(list())
  })
  const refuse = () => {
    throw new ProblemError(problem('RULES_FROM_FILE', `Rules come from the file ${rulesPath}: change them there.`))
  }
  for (const [method, url, operationId, summary] of WRITES) {
    const params = { type: 'object', properties: { rule_id: { type: 'string' } } }
    const description = 'Always 409 in this version: rules come from a file, and the problem names it.'
    const described = { operationId, summary, description, tags: ['rules'], response: problemAnswers(409) }
    const schema = url === RULES_PATH ? described : { ...described, params }
    app.route({ method, url, schema, config: { access: 'editor' }, handler: refuse })
  }
}

const WRITES = [
  ['POST', RULES_PATH, 'createRule', 'Create a rule'],
  ['PUT', `${RULES_PATH}/:rule_id`, 'replaceRule', 'Replace a rule'],
  ['DELETE', `${RULES_PATH}/:rule_id`, 'deleteRule', 'Delete a rule'],
] as const

/** Put into words once per version, however often it is asked for. */
function listText(limiter: Limiter): () => string {
  let version = -1
  let text = ''
  return () => {
    if (version === limiter.version) return text
    version = limiter.version
    text = JSON.stringify({ version, rules: limiter.rules.filter(({ enabled }) => enabled).map(plainRule) })
    return text
  }
}
