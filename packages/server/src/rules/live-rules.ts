// Keeps the rules in force equal to the rule file. A file that breaks while running changes nothing: the last good
// rules stay, one error line says so, and `sluice_rules_valid` is 0 until the file is mended.

import { type Limiter, LimiterError } from 'sluice'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import { type FileWatch, watchFile } from './file-watch.ts'
import { mistakesIn, useRuleFile } from './rule-file.ts'

export type LiveRulesParts = {
  readonly path: string
  /** The print of the file as it was when the rules now in force were read. */
  readonly print: string
  readonly limiter: Limiter
  readonly metrics: Metrics
  readonly log: Log
}

export function followRuleFile(parts: LiveRulesParts): FileWatch {
  parts.metrics.rulesVersion = parts.limiter.version
  return watchFile(parts.path, parts.print, () => reload(parts))
}

function reload({ path, limiter, metrics, log }: LiveRulesParts): void {
  try {
    useRuleFile(path, (rules) => limiter.setRules(rules))
    metrics.rulesValid = true
    metrics.rulesVersion = limiter.version
    log.info({ file: path, version: limiter.version, rules: limiter.rules.length }, 'new rules are in force')
  } catch (error) {
    metrics.rulesValid = false
    const errors = error instanceof LimiterError ? mistakesIn(error) : [String(error)]
    log.error(
      { file: path, version: limiter.version, errors },
      'the rule file is wrong: the last good rules stay in force',
    )
  }
}
