// `sluice audit list`: entries of the audit log, from the database itself or through a node.

import { ACTION_FILTER, ACTION_FIX, type AuditPage, type AuditQuery, listAudit } from '../audit/audit-list.ts'
import { AUDIT_PATH } from '../http/routes/audit-list.ts'
import { EXIT } from '../process/exit-codes.ts'
import { Api, SERVER_FLAGS } from './api.ts'
import type { Given } from './arguments.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { DATABASE_FLAGS, namesDatabase, withDatabase } from './database-flags.ts'
import { actorText, afterFlag, limitFlag, pathWith, printList, requireRange, timeFlag } from './list.ts'

export const AUDIT_LIST: Command = defineCommand({
  name: 'audit list',
  summary: 'Lists who changed what, when and why, newest first.',
  details: 'With --json, also what was changed (diff) and the hash of each entry.',
  positionals: [],
  flags: [
    { name: 'actor', value: '<id>', help: 'Only changes by this actor: the id of a token, or admin-token.' },
    {
      name: 'action',
      value: '<action>',
      help: 'Only this action, such as rule.update, or a group of actions, such as rule.*.',
      accepts: (text) => ACTION_FILTER.test(text),
      fix: ACTION_FIX,
    },
    { name: 'target', value: '<id>', help: 'Only changes of this target, such as the id of a rule or token.' },
    timeFlag('since', 'Only entries from this time on.'),
    timeFlag('until', 'Only entries before this time.'),
    limitFlag('entries', 50),
    afterFlag(/^\d{1,15}$/),
    ...DATABASE_FLAGS,
    ...SERVER_FLAGS,
    ...OUTPUT_FLAGS,
  ],
  examples: [
    { does: 'what changed in the last two hours?', line: 'sluice audit list --since 2h' },
    { does: 'who disabled rules?', line: "sluice audit list --action 'kill_switch.*'" },
    { does: 'the history of one rule, without a node', line: 'sluice audit list --target demo --data-dir .sluice' },
  ],
  run: async (given, terminal) => {
    const answer = await pageOf(given)
    const rows = answer.entries.map(({ seq, at, actor, actor_name: name, action, target, reason }) => {
      return [String(seq), at, actorText(actor, name), action, target, reason ?? '']
    })
    const header = ['SEQ', 'AT', 'ACTOR', 'ACTION', 'TARGET', 'REASON']
    printList({ answer, header, rows, none: 'no audit entries found', next: answer.next }, given, terminal)
    return EXIT.done
  },
})

function pageOf(given: Given): Promise<AuditPage> {
  const after = given.text('after')
  const query: AuditQuery = {
    actor: given.text('actor'),
    action: given.text('action'),
    target: given.text('target'),
    ...requireRange(given),
    beforeSeq: after === undefined ? undefined : Number(after),
    limit: Number(given.text('limit')),
  }
  if (namesDatabase(given)) return withDatabase(given, (database) => listAudit(database, query))
  const { actor, action, target, since, until, limit } = query
  const times = { since: since?.toISOString(), until: until?.toISOString() }
  return new Api(given).get(pathWith(AUDIT_PATH, { actor, action, target, ...times, after, limit: String(limit) }))
}
