// GET /api/v1/admin/audit/verify: verifies the hash chain of the audit log.

import type { FastifyInstance } from 'fastify'
import type { AuditVerdict } from '../../audit/audit.ts'
import { ProblemError, problem } from '../../problems/problem.ts'
import { answers } from '../bodies/schemas.ts'

export const AUDIT_VERIFY_PATH = '/api/v1/admin/audit/verify'

const ANSWER = {
  type: 'object',
  required: ['intact', 'rows'],
  properties: {
    intact: { type: 'boolean', description: 'Whether every entry is unchanged and none is missing.' },
    rows: { type: 'integer', description: 'Number of intact entries from the start.' },
    hash: {
      type: 'string',
      description: 'Intact: hash of the last entry. Store it elsewhere to detect a rewritten chain.',
    },
    seq: { type: 'integer', description: 'Broken: the first changed entry.' },
    why: { type: 'string', description: 'Broken: how it was changed.' },
  },
}

/** `verify` is undefined on a node without a database. */
export function auditRoute(app: FastifyInstance, verify: (() => Promise<AuditVerdict>) | undefined): void {
  const schema = {
    operationId: 'verifyAudit',
    summary: 'Verify the audit log',
    description: 'Reads every entry, so the time grows with their number.',
    tags: ['admin'],
    response: answers(ANSWER, 409, 503),
  }
  app.get(AUDIT_VERIFY_PATH, { schema, config: { access: 'viewer' } }, () => {
    if (verify !== undefined) return verify()
    throw new ProblemError(problem('NO_DATABASE', 'This node has no database, and therefore no audit log.'))
  })
}
