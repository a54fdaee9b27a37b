// Rules from a file, YAML or JSON. Whatever is wrong with it is told with its line.

import type { Fault, LimiterError } from 'sluice'
import { filePrint, watchFile } from './file-watch.ts'
import { type RuleText, readRuleText } from './long-text.ts'
import { readText, ruleFileError } from './rule-file.ts'
import type { FoundRules, RuleSource } from './rule-source.ts'

export function fileSource(path: string): RuleSource {
  let print: string | undefined
  /** What the watch has last seen at rest; before there is one, whatever is there. */
  let atRest: string | undefined
  return {
    kind: 'file',
    place: `the file ${path}`,
    read: async () => {
      const found = atRest ?? filePrint(path) // before its content: a change after this look is seen at the next one
      if (found === print) return undefined
      print = undefined // what cannot be read is tried again
      const text = await readRuleText(readText(path), path.endsWith('.json') ? 'json' : 'yaml')
      print = found
      return foundIn(text, path)
    },
    watch: async (changed) => {
      atRest = print ?? ''
      const { stop } = watchFile(path, atRest, (seen) => {
        atRest = seen
        changed()
      })
      return { stop: async () => stop() }
    },
    close: async () => {},
  }
}

async function foundIn({ value, faults, linesOf }: RuleText, path: string): Promise<FoundRules> {
  const errorOf = async (wrong: readonly Fault[]): Promise<LimiterError> => {
    const fields = wrong.map(({ field }) => field)
    const lines = await linesOf(fields)
    return ruleFileError(path, wrong, (field) => lines[fields.indexOf(field)])
  }
  if (faults.length > 0) throw await errorOf(faults)
  return { rules: value, errorOf }
}
