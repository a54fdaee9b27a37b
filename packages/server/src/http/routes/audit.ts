// GET /api/v1/admin/audit/verify: is the audit what was written?

import type { FastifyInstance } from 'fastify'
import type { AuditVerdict } from '../../audit/audit.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { answers } from '../bodies/schemas.ts'

export const AUDIT_VERIFY_PATH = '/api/v1/admin/audit/verify'

const ANSWER = {
  type: 'object',
  required: ['intact', 'rows'],
  properties: {
    intact: { type: 'boolean', description: 'Whether every entry is as it was written, and none is gone.' },
    rows: { type: 'integer', description: 'Entries that are intact, from the first one on.' },
    hash: { type: 'string', description: 'Intact: of the last entry. Kept elsewhere, it also proves a whole chain.' },
    seq: { type: 'integer', description: 'Broken: the first entry that is not as it was.' },
    why: { type: 'string', description: 'Broken: what happened to it.' },
  },
}

/** `verify` is undefined on a node without a database. */
export function auditRoute(app: FastifyInstance, verify: (() => Promise<AuditVerdict>) | undefined): void {
  const schema = {
    operationId: 'verifyAudit',
    summary: 'Whether the audit is what was written',
    description: 'Goes over every entry, so it takes a while where there are many.',
    tags: ['admin'],
    response: answers(ANSWER, 409, 503),
  }
  app.get(AUDIT_VERIFY_PATH, { schema, config: { access: 'viewer' } }, () => {
    if (verify !== undefined) return verify()
    throw new ProblemError(problem('NO_DATABASE', 'The audit is kept in a database, and this node has none.'))
  })
}
