// `sluice audit verify`: verifies the hash chain of the audit log, in the database itself or through a node.

import { type AuditVerdict, verifyAudit } from '../audit/audit.ts'
import { AUDIT_VERIFY_PATH } from '../http/routes/audit.ts'
import { EXIT } from '../process/exit-codes.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { DATABASE_FLAGS, namesDatabase, withDatabase } from './database-flags.ts'
import { paintOn } from './paint.ts'

export const AUDIT_VERIFY: Command = defineCommand({
  name: 'audit verify',
  summary: 'Verifies that no entry of the audit log was edited, deleted, added or moved.',
  details:
    'Otherwise, names the entry and exits with 3. Prints the hash of the last entry. To detect a log that was ' +
    'rewritten as a whole, compare it with a hash that you stored elsewhere.',
  positionals: [],
  flags: [...DATABASE_FLAGS, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'through a node', line: 'sluice audit verify' },
    { does: 'without trusting a node', line: 'sluice audit verify --database postgres://auditor@10.0.0.7/sluice' },
  ],
  run: async (given, terminal) => {
    const verdict = await verdictOf(given)
    const paint = paintOn(terminal)
    if (given.has('json')) terminal.out(`${JSON.stringify(verdict, null, 2)}\n`)
    else if (verdict.intact)
      terminal.out(`${paint('green', 'intact')}: ${verdict.rows} entries, hash ${verdict.hash}\n`)
    else terminal.out(`${paint('red', 'broken')}: ${verdict.why}; ${verdict.rows} entries before it are intact\n`)
    return verdict.intact ? EXIT.done : EXIT.negative
  },
})

function verdictOf(given: Given): Promise<AuditVerdict> {
  if (!namesDatabase(given)) return new Api(given).get(AUDIT_VERIFY_PATH)
  return withDatabase(given, verifyAudit)
}
