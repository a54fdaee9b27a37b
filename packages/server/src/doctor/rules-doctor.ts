// Checks that the configured rule source is reachable and its rules are valid.

import { LimiterError, wallClock } from 'sluice'
import { migrationState } from '../db/migrate.ts'
import { openDatabase } from '../db/open-database.ts'
import { reasonOf } from '../problems/reason.ts'
import { EtcdSource } from '../rules/etcd/etcd-source.ts'
import { lintRuleFile } from '../rules/lint.ts'
import { offlineLimiter } from '../rules/offline-limiter.ts'
import { isFirstStart } from '../rules/open-rules.ts'
import { errorLines } from '../rules/rule-file.ts'
import { RuleStore } from '../rules/rule-store.ts'
import { isEtcdUrl, parseEtcdUrl } from '../settings/etcd-address.ts'
import type { Settings } from '../settings/settings.ts'
import { type Finding, failure, ok, warning } from './finding.ts'

/** Skips the embedded database, which a running node has locked. */
export async function examineRules(settings: Pick<Settings, 'rules' | 'database' | 'dataDir'>): Promise<Finding> {
  const { rules: location, database } = settings
  try {
    if (location !== undefined) return isEtcdUrl(location) ? await examineEtcd(location) : examineFile(location)
    if (database !== undefined) return await examineStored(database)
    if (isFirstStart(settings))
      return ok('rules', `none yet: the first start creates a database in ${settings.dataDir}`)
    return ok('rules', 'in the embedded database')
  } catch (error) {
    if (error instanceof LimiterError)
      return failure('rules', errorLines(error).join('; '), 'fix them in the rule source')
    return failure('rules', reasonOf(error), 'make the rule source reachable, or choose another one with --rules')
  }
}

async function examineStored(url: string): Promise<Finding> {
  const database = await openDatabase({ database: url, dataDir: '' })
  try {
    if ((await migrationState(database)).pending.length > 0)
      return ok('rules', 'none yet: a node creates the tables when it starts')
    const { version, rules } = await new RuleStore(database).read()
    await offlineLimiter(rules).close()
    return ok('rules', `in PostgreSQL: ${rules.length} rules, version ${version}`)
  } finally {
    await database.close()
  }
}

function examineFile(path: string): Finding {
  const { mistakes, warnings, rules } = lintRuleFile(path, wallClock.nowUs() / 1000)
  const advice = `sluice rules lint ${path} lists them`
  if (mistakes.length > 0) return failure('rules', `${path}: ${mistakes.length} errors`, advice)
  if (warnings.length > 0) return warning('rules', `${path}: ${rules} rules, ${warnings.length} warnings`, advice)
  return ok('rules', `${path}: ${rules} rules`)
}

async function examineEtcd(url: string): Promise<Finding> {
  const address = parseEtcdUrl(url)
  if (typeof address === 'string') return failure('rules', 'not an etcd address', address)
  const source = new EtcdSource(address)
  const found = await source.read(undefined)
  const limiter = offlineLimiter(found?.rules)
  await limiter.close()
  return ok('rules', `${source.location}: ${limiter.rules.length} rules, revision ${found?.version}`)
}
