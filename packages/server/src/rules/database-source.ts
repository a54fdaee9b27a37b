// Rules from the database. NOTIFY tells of a change at once. An empty database gets the example rules, once, so that a
// first start has something to show.

import type { Database } from '../db/database.ts'
import { migrate } from '../db/migrate.ts'
import { exampleRulesPath } from '../package-facts.ts'
import { readRuleFile } from './rule-file.ts'
import type { RuleSource } from './rule-source.ts'
import { RULES_CHANNEL, RuleStore } from './rule-store.ts'

export function databaseSource(database: Database, place: string): RuleSource {
  const store = new RuleStore(database)
  let ready: Promise<void> | undefined
  const prepare = () => {
    ready ??= makeReady(database, store).catch((error) => {
      ready = undefined // the database was down: at the next read it may not be
      throw error
    })
    return ready
  }
  return {
    kind: 'database',
    place,
    read: async (known, present) => {
      await prepare()
      return (await store.version()) === known ? undefined : store.read(known, present)
    },
    watch: (changed) => database.listen(RULES_CHANNEL, changed),
    close: () => database.close(),
  }
}

async function makeReady(database: Database, store: RuleStore): Promise<void> {
  await migrate(database)
  if ((await store.version()) > 0) return
  const author = { actor: 'sluice', reason: 'the database was empty: the example rules' }
  const examples = readRuleFile(exampleRulesPath())
  // Another node may have been faster: then its rules stay.
  const next = async (_: unknown, version: number) => (version === 0 ? examples : Promise.reject(new NotEmpty()))
  await store.edit({ action: 'rules.import', next }, { author }).catch((error) => {
    if (!(error instanceof NotEmpty)) throw error
  })
}

class NotEmpty extends Error {}
