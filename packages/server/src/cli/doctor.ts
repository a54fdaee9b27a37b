// `sluice doctor`: looks at everything that a node with these settings would lean on, and tells what is wrong and how
// to mend it. Changes nothing.

import { doubtful, type Finding, type Health, well } from '../doctor/finding.ts'
import { readCommand } from '../settings/command-line.ts'
import type { Settings } from '../settings/settings.ts'
import { aligned } from '../text/aligned.ts'
import { type Command, EXIT, OUTPUT_FLAGS } from './command.ts'
import { usageText } from './help.ts'
import { paintOn } from './paint.ts'
import { SETTING_FLAGS } from './setting-flags.ts'
import type { Terminal } from './terminal.ts'

const OLDEST_NODE = [20, 19] as const
const DEADLINE_MS = { store: 15, global: 250 } as const

export const DOCTOR: Command = {
  name: 'doctor',
  summary: 'Looks at Redis, PostgreSQL, clocks and rules: what is wrong, and how to mend it.',
  details:
    'Takes the settings of sluice serve, from flags and from the environment. Ends with 3 when something is wrong.',
  positionals: [],
  flags: [...SETTING_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'on the machine of a node, with its environment', line: 'sluice doctor' },
    { does: 'before it is used', line: 'sluice doctor --redis redis://10.0.0.5:6379 --rules rules.yaml' },
  ],
  run: async (args, terminal) => {
    const own = OUTPUT_FLAGS.map(({ name }) => `--${name}`)
    const command = readCommand(
      args.filter((arg) => !own.includes(arg)),
      terminal.env,
    )
    if (command.kind === 'wrong') {
      terminal.tell(usageText(command.faults))
      return EXIT.wrong
    }
    const findings = await examine(command.settings)
    if (args.includes('--json')) terminal.out(`${JSON.stringify(findings, null, 2)}\n`)
    else print(findings, args.includes('--no-color') ? { ...terminal, colors: false } : terminal)
    return findings.some(({ health }) => health === 'wrong') ? EXIT.no : EXIT.done
  },
}

/** Each part is loaded when needed only. */
async function examine(settings: Settings): Promise<Finding[]> {
  const { database, rules, dataDir } = settings
  return [
    node(),
    ...(await examineStores(settings)),
    ...(database === undefined ? [] : await (await import('../doctor/database-doctor.ts')).examineDatabase(database)),
    await (await import('../doctor/rules-doctor.ts')).examineRules({ rules, database, dataDir }),
  ]
}

async function examineStores(settings: Settings): Promise<Finding[]> {
  const { redis, stores = {}, globalRedis } = settings
  const { storeDeadlineMs = DEADLINE_MS.store, globalDeadlineMs = DEADLINE_MS.global } = settings
  if (redis === undefined) return [well('counters', 'in the memory of the process: nodes do not share them')]
  const { examineRedis } = await import('../doctor/redis-doctor.ts')
  const all = [
    examineRedis('Redis', redis, storeDeadlineMs),
    ...Object.entries(stores).map(([name, url]) => examineRedis(`Redis ${name}`, url, storeDeadlineMs)),
    ...(globalRedis === undefined ? [] : [examineRedis('global Redis', globalRedis, globalDeadlineMs)]),
  ]
  return (await Promise.all(all)).flat()
}

function node(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const isKnown = major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])
  if (isKnown) return well('Node', process.version)
  return doubtful('Node', process.version, `use Node ${OLDEST_NODE.join('.')} or newer`)
}

const COLORS = { well: 'green', doubtful: 'yellow', wrong: 'red' } as const

function print(findings: readonly Finding[], terminal: Terminal): void {
  const paint = paintOn(terminal)
  const rows = aligned(findings.map(({ health, about, found }) => [health, about, found]))
  findings.forEach(({ health, fix }, index) => {
    terminal.out(`${(rows[index] ?? '').replace(health, paint(COLORS[health], health))}\n`)
    if (fix !== '') terminal.out(`      ${fix}\n`)
  })
  const count = (health: Health) => findings.filter((finding) => finding.health === health).length
  terminal.tell(`${count('wrong')} wrong, ${count('doubtful')} doubtful, ${count('well')} well\n`)
}
