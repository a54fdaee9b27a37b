// `sluice doctor`: checks everything that a node with these settings depends on, and prints problems with fixes.

import { type Finding, type Health, ok, warning } from '../doctor/finding.ts'
import { EXIT } from '../process/exit-codes.ts'
import type { Terminal } from '../process/terminal.ts'
import { readCommand } from '../settings/command-line.ts'
import { GLOBAL_DEADLINE_MS, STORE_DEADLINE_MS } from '../settings/deadlines.ts'
import type { Settings } from '../settings/settings.ts'
import { aligned } from '../text/aligned.ts'
import { type Command, OUTPUT_FLAGS } from './command.ts'
import { usageText } from './help.ts'
import { paintOn } from './paint.ts'
import { SETTING_FLAGS } from './setting-flags.ts'

const NODEJS_MIN = [20, 19] as const

export const DOCTOR: Command = {
  name: 'doctor',
  summary: 'Checks Redis, PostgreSQL, clocks and rules, and suggests fixes.',
  details: 'Takes the flags and environment variables of sluice serve. Exits with 3 if it finds an error.',
  positionals: [],
  flags: [...SETTING_FLAGS, ...OUTPUT_FLAGS],
  examples: [
    { does: 'on the machine of a node, with its environment', line: 'sluice doctor' },
    { does: 'before the first start', line: 'sluice doctor --redis redis://10.0.0.5:6379 --rules rules.yaml' },
  ],
  run: async (args, terminal) => {
    const own = OUTPUT_FLAGS.map(({ name }) => `--${name}`)
    const command = readCommand(
      args.filter((arg) => !own.includes(arg)),
      terminal.env,
    )
    if (command.kind === 'wrong') {
      terminal.tell(usageText(command.fieldErrors))
      return EXIT.invalid
    }
    const findings = await examine(command.settings)
    if (args.includes('--json')) terminal.out(`${JSON.stringify(findings, null, 2)}\n`)
    else print(findings, args.includes('--no-color') ? { ...terminal, colors: false } : terminal)
    return findings.some(({ health }) => health === 'error') ? EXIT.negative : EXIT.done
  },
}

/** Loads the code of each check only when needed. */
async function examine(settings: Settings): Promise<Finding[]> {
  const { database, rules, dataDir } = settings
  return [
    nodejsVersion(),
    ...(await examineStores(settings)),
    ...(database === undefined ? [] : await (await import('../doctor/database-doctor.ts')).examineDatabase(database)),
    await (await import('../doctor/rules-doctor.ts')).examineRules({ rules, database, dataDir }),
  ]
}

async function examineStores(settings: Settings): Promise<Finding[]> {
  const { redis, stores = {}, globalRedis, redisSlotGroups } = settings
  const { storeDeadlineMs = STORE_DEADLINE_MS, globalDeadlineMs = GLOBAL_DEADLINE_MS } = settings
  if (redis === undefined) return [ok('store', 'in memory, not shared with other nodes')]
  const { examineRedis } = await import('../doctor/redis-doctor.ts')
  const all = [
    examineRedis('Redis', redis, storeDeadlineMs, redisSlotGroups),
    ...Object.entries(stores).map(([name, url]) =>
      examineRedis(`Redis ${name}`, url, storeDeadlineMs, redisSlotGroups),
    ),
    ...(globalRedis === undefined
      ? []
      : [examineRedis('global Redis', globalRedis, globalDeadlineMs, redisSlotGroups)]),
  ]
  return (await Promise.all(all)).flat()
}

function nodejsVersion(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const isSupported = major > NODEJS_MIN[0] || (major === NODEJS_MIN[0] && minor >= NODEJS_MIN[1])
  if (isSupported) return ok('Node.js', process.version)
  return warning('Node.js', process.version, `use Node.js ${NODEJS_MIN.join('.')} or newer`)
}

const COLORS = { ok: 'green', warning: 'yellow', error: 'red' } as const

function print(findings: readonly Finding[], terminal: Terminal): void {
  const paint = paintOn(terminal)
  const rows = aligned(findings.map(({ health, about, found }) => [health, about, found]))
  findings.forEach(({ health, fix }, index) => {
    terminal.out(`${(rows[index] ?? '').replace(health, paint(COLORS[health], health))}\n`)
    if (fix !== '') terminal.out(`      ${fix}\n`)
  })
  const count = (health: Health) => findings.filter((finding) => finding.health === health).length
  terminal.tell(`errors: ${count('error')}, warnings: ${count('warning')}, ok: ${count('ok')}\n`)
}
