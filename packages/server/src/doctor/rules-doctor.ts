// Would the rules be accepted?

import { createLimiter, LimiterError, systemClock } from 'sluice'
import { isEtcdUrl, parseEtcdUrl } from '../rules/etcd/etcd-address.ts'
import { EtcdSource } from '../rules/etcd/etcd-source.ts'
import { lintRuleFile } from '../rules/lint.ts'
import { mistakesIn } from '../rules/rule-file.ts'
import { doubtful, type Finding, reasonOf, well, wrong } from './finding.ts'

export async function examineRules(place: string): Promise<Finding> {
  try {
    return isEtcdUrl(place) ? await examineEtcd(place) : examineFile(place)
  } catch (error) {
    if (error instanceof LimiterError) return wrong('rules', mistakesIn(error).join('; '), 'mend them where they are')
    return wrong('rules', reasonOf(error), 'start etcd, open the way to it, or give another address with --rules')
  }
}

function examineFile(path: string): Finding {
  const { mistakes, warnings, rules } = lintRuleFile(path, systemClock.nowUs() / 1000)
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
  const limiter = createLimiter({ rules: found?.rules })
  await limiter.close()
  return well('rules', `${source.place}: ${limiter.rules.length} rules, revision ${found?.version}`)
}
