// `sluice audit verify`: is the audit what was written? Reads the database itself, or lets a node do it.

import { type AuditVerdict, verifyAudit } from '../audit/audit.ts'
import { AUDIT_VERIFY_PATH } from '../http/routes/audit.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, defineCommand, EXIT, OUTPUT_FLAGS } from './command.ts'
import { DATABASE_FLAGS, namesDatabase, withDatabase } from './database-flags.ts'
import { paintOn } from './paint.ts'

export const AUDIT_VERIFY: Command = defineCommand({
  name: 'audit verify',
  summary: 'Proves that no entry of the audit was edited, deleted, added or moved.',
  details:
    'Ends with 3 and names the entry when one was. It prints the hash of the last entry: whoever keeps that ' +
    'elsewhere also notices an audit that was written anew as a whole.',
  positionals: [],
  flags: [...DATABASE_FLAGS, ...SERVER_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'by a node', line: 'sluice audit verify' },
    { does: 'without trusting any', line: 'sluice audit verify --database postgres://auditor@10.0.0.7/sluice' },
  ],
  run: async (given, terminal) => {
    const verdict = await verdictOf(given)
    const paint = paintOn(terminal)
    if (given.has('json')) terminal.out(`${JSON.stringify(verdict, null, 2)}\n`)
    else if (verdict.intact)
      terminal.out(`${paint('green', 'intact')}: ${verdict.rows} entries, hash ${verdict.hash}\n`)
    else terminal.out(`${paint('red', 'broken')}: ${verdict.why}; ${verdict.rows} entries before it are intact\n`)
    return verdict.intact ? EXIT.done : EXIT.no
  },
})

function verdictOf(given: Given): Promise<AuditVerdict> {
  if (!namesDatabase(given)) return new Api(given).get(AUDIT_VERIFY_PATH)
  return withDatabase(given, verifyAudit)
}
