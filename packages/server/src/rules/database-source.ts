// Rules from the database. NOTIFY announces changes. An empty database gets the example rules once, so that the first
// start has rules to show.

import type { Database } from '../db/database.ts'
import { migrate } from '../db/migrate.ts'
import { exampleRulesPath } from '../package-facts.ts'
import { readRuleFile } from './rule-file.ts'
import type { RuleSource } from './rule-source.ts'
import { RULES_CHANNEL, RuleStore } from './rule-store.ts'

export function databaseSource(database: Database, location: string): RuleSource {
  const store = new RuleStore(database)
  let ready: Promise<void> | undefined
  const ensureReady = () => {
    ready ??= migrateAndSeed(database, store).catch((error) => {
      ready = undefined // the database was down; retry at the next read
      throw error
    })
    return ready
  }
  return {
    kind: 'database',
    location,
    read: async (known, present) => {
      await ensureReady()
      return (await store.version()) === known ? undefined : store.read(known, present)
    },
    watch: (changed) => database.listen(RULES_CHANNEL, changed),
    close: () => database.close(),
  }
}

/** Author of the example rules that an empty database gets. */
export const EXAMPLES_AUTHOR = 'sluice'

async function migrateAndSeed(database: Database, store: RuleStore): Promise<void> {
  await migrate(database)
  if ((await store.version()) > 0) return
  const author = { actor: EXAMPLES_AUTHOR, reason: 'example rules for an empty database' }
  const examples = readRuleFile(exampleRulesPath())
  // Another node may have been first; keep its rules.
  const next = async (_: unknown, version: number) => (version === 0 ? examples : Promise.reject(new NotEmpty()))
  await store.edit({ action: 'rules.import', next }, { author }).catch((error) => {
    if (!(error instanceof NotEmpty)) throw error
  })
}

class NotEmpty extends Error {}
