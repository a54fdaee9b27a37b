// Would the rules be accepted?

import { LimiterError, wallClock } from 'sluice'
import { migrationsToRun } from '../db/migrate.ts'
import { openDatabase } from '../db/open-database.ts'
import { reasonOf } from '../problems/reason.ts'
import { isEtcdUrl, parseEtcdUrl } from '../rules/etcd/etcd-address.ts'
import { EtcdSource } from '../rules/etcd/etcd-source.ts'
import { lintRuleFile } from '../rules/lint.ts'
import { offlineLimiter } from '../rules/offline-limiter.ts'
import { isFirstStart } from '../rules/open-rules.ts'
import { mistakesIn } from '../rules/rule-file.ts'
import { RuleStore } from '../rules/rule-store.ts'
import type { Settings } from '../settings/settings.ts'
import { doubtful, type Finding, well, wrong } from './finding.ts'

/** The embedded database is left alone: the node that uses it has it locked. */
export async function examineRules(settings: Pick<Settings, 'rules' | 'database' | 'dataDir'>): Promise<Finding> {
  const { rules: place, database } = settings
  try {
    if (place !== undefined) return isEtcdUrl(place) ? await examineEtcd(place) : examineFile(place)
    if (database !== undefined) return await examineStored(database)
    if (isFirstStart(settings))
      return well('rules', `none yet: the first start makes a database in ${settings.dataDir}`)
    return well('rules', 'in the embedded database')
  } catch (error) {
    if (error instanceof LimiterError) return wrong('rules', mistakesIn(error).join('; '), 'mend them where they are')
    return wrong('rules', reasonOf(error), 'open the way to where they are, or name another place with --rules')
  }
}

async function examineStored(url: string): Promise<Finding> {
  const database = await openDatabase({ database: url, dataDir: '' })
  try {
    if ((await migrationsToRun(database)).length > 0) return well('rules', 'none yet: a node makes the tables first')
    const { version, rules } = await new RuleStore(database).read()
    await offlineLimiter(rules).close()
    return well('rules', `in PostgreSQL: ${rules.length} rules, version ${version}`)
  } finally {
    await database.close()
  }
}

function examineFile(path: string): Finding {
  const { mistakes, warnings, rules } = lintRuleFile(path, wallClock.nowUs() / 1000)
  const advice = `sluice rules lint ${path} lists them`
  if (mistakes.length > 0) return wrong('rules', `${path}: ${mistakes.length} of its fields are wrong`, advice)
  if (warnings.length > 0) return doubtful('rules', `${path}: ${rules} rules, ${warnings.length} warnings`, advice)
  return well('rules', `${path}: ${rules} rules`)
}

async function examineEtcd(url: string): Promise<Finding> {
  const address = parseEtcdUrl(url)
  if (typeof address === 'string') return wrong('rules', 'not an address of etcd', address)
  const source = new EtcdSource(address)
  const found = await source.read(undefined)
  const limiter = offlineLimiter(found?.rules)
  await limiter.close()
  return well('rules', `${source.place}: ${limiter.rules.length} rules, revision ${found?.version}`)
}
