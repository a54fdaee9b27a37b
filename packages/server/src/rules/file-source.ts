// Rules from a YAML or JSON file. Errors name the line.

import type { FieldError, LimiterError } from 'sluice'
import { fileFingerprint, watchFile } from './file-watch.ts'
import { readText, ruleFileError } from './rule-file.ts'
import type { FoundRules, RuleSource } from './rule-source.ts'
import { type RuleText, readRuleText } from './rule-text.ts'

export function fileSource(path: string): RuleSource {
  let fingerprint: string | undefined
  /** Last stable fingerprint seen by the watch; undefined before the watch starts. */
  let stable: string | undefined
  return {
    kind: 'file',
    location: `the file ${path}`,
    read: async () => {
      const found = stable ?? fileFingerprint(path) // before the content, so that a later change is noticed
      if (found === fingerprint) return undefined
      fingerprint = undefined // so that a failed read is retried
      const text = await readRuleText(readText(path), path.endsWith('.json') ? 'json' : 'yaml')
      fingerprint = found
      return foundIn(text, path)
    },
    watch: async (changed) => {
      stable = fingerprint ?? ''
      const { stop } = watchFile(path, stable, (seen) => {
        stable = seen
        changed()
      })
      return { stop: async () => stop() }
    },
    close: async () => {},
  }
}

async function foundIn({ value, errors, linesOf }: RuleText, path: string): Promise<FoundRules> {
  const errorOf = async (invalid: readonly FieldError[]): Promise<LimiterError> => {
    const fields = invalid.map(({ field }) => field)
    const lines = await linesOf(fields)
    return ruleFileError(path, invalid, (field) => lines[fields.indexOf(field)])
  }
  if (errors.length > 0) throw await errorOf(errors)
  return { rules: value, errorOf }
}
