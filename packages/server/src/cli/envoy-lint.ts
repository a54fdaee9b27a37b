// `sluice envoy lint`: prints the errors and warnings in configurations of envoyproxy/ratelimit. Needs no node.

import { findingLine, lintConfigFiles } from '../envoy/config-files.ts'
import { EXIT } from '../process/exit-codes.ts'
import { type Command, defineCommand, OUTPUT_FLAGS } from './command.ts'
import { paintOn } from './paint.ts'

export const ENVOY_LINT: Command = defineCommand({
  name: 'envoy lint',
  summary: 'Lists errors in configurations of envoyproxy/ratelimit, with line numbers.',
  details: 'Also warns about descriptors that no request reaches, keys without effect, and files that are not read.',
  positionals: [
    {
      name: '<file>',
      help: 'YAML files, or folders of them; each is checked as a separate configuration',
      repeats: true,
    },
  ],
  flags: OUTPUT_FLAGS,
  examples: [
    { does: 'before a start', line: 'sluice envoy lint ratelimit.yaml' },
    { does: 'as JSON', line: 'sluice envoy lint config/ --json' },
  ],
  run: async (given, terminal) => {
    const paint = paintOn(terminal)
    const linted = given.positionals.map((path) => ({ path, ...lintConfigFiles(path) }))
    const errors = linted.flatMap(({ findings }) => findings.filter(({ severity }) => severity === 'error'))
    if (given.has('json')) {
      const files = linted.map(({ path, domains, findings }) => {
        return { path, domains: domains.map(({ domain }) => domain), findings }
      })
      terminal.out(`${JSON.stringify(files, null, 2)}\n`)
      return errors.length > 0 ? EXIT.invalid : EXIT.done
    }
    for (const { path, domains, findings } of linted) {
      for (const finding of findings) {
        const kind = paint(finding.severity === 'error' ? 'red' : 'yellow', finding.severity)
        terminal.out(`${findingLine(finding, kind)}\n`)
      }
      const wrong = findings.filter(({ severity }) => severity === 'error').length
      const found = [counted(wrong, 'error'), counted(findings.length - wrong, 'warning')].join(', ')
      terminal.tell(`${path}: ${counted(domains.length, 'domain')}, ${found}\n`)
    }
    return errors.length > 0 ? EXIT.invalid : EXIT.done
  },
})

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
