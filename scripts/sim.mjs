// `npm run sim`: runs the simulated fleet with any number of seeds, or with mutants of the code. Mutants of short calls
// run against the tests that compare these with batches and with the algorithms, on a real Redis.

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs, stripVTControlCharacters } from 'node:util'
import { bin, installPackages, root } from './setup.mjs'

const HELP = `Usage: npm run sim -- [options]

  --seeds N    number of runs (default 200)
  --first N    seed of the first run (default 1): replays a failed run
  --remote     nodes reach the store through the service, with the lease protocol
  --mutants    mutation test: each known bug must be detected, by the simulation within the seeds, or on a real Redis
`

const SIMULATION = ['simulation', 'regions', 'pairs'].map((name) => `packages/sluice/test/simulation/${name}.test.ts`)
const REMOTE = ['packages/server/test/remote/simulation.test.ts']
const REDIS = ['packages/sluice/test/short-calls.test.ts', 'packages/sluice/test/differential/differential.test.ts']
const FAILED_SEED = /(seed \d+); replay/
/** Names the file of a test that failed; a file that could not be loaded has no title. */
const FAILED_TEST = /^ FAIL .*packages\/sluice\/test\/(?:\w+\/)?([\w-]+)\.test\.ts > /m

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '200' },
    first: { type: 'string', default: '1' },
    remote: { type: 'boolean', default: false },
    mutants: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
for (const name of ['seeds', 'first']) {
  if (!/^\d+$/.test(values[name])) fail(`--${name} ${values[name]}: give a whole number`)
}
if (values.remote && values.mutants)
  fail('--mutants: remove it, or --remote: mutants are of the lease, guard and pair code')
if (values.help) {
  console.log(HELP)
  process.exit(0)
}
installPackages()
process.exitCode = values.mutants ? runMutants() : runSeeds()

function runSeeds() {
  const startedMs = performance.now()
  const { status } = run(values.remote ? REMOTE : SIMULATION, '', 'inherit')
  const rate = (Number(values.seeds) * 1000) / (performance.now() - startedMs)
  if (status === 0) console.log(`${values.seeds} seeds, 0 violations, ${rate.toFixed(1)} seeds/s`)
  return status ?? 1
}

/** Runs the tests once per mutant; each is a plausible bug in the lease, guard or pair code, or in Lua. */
function runMutants() {
  const mutants = JSON.parse(readFileSync(join(root, 'packages/sluice/test/simulation/mutants.json'), 'utf8'))
  let missed = 0
  for (const { name, file } of mutants) {
    const inRedis = file.startsWith('redis/')
    const { status, stdout, stderr } = run(inRedis ? [...REDIS, '--bail', '1'] : SIMULATION, name, 'pipe')
    const output = stripVTControlCharacters(`${stdout}${stderr}`)
    const [, found] = (inRedis ? FAILED_TEST : FAILED_SEED).exec(output) ?? []
    if (status !== 0 && found === undefined) fail(`the mutant "${name}" could not be run:\n${output}`)
    if (status === 0) missed += 1
    console.log(`${(status === 0 ? 'MISSED' : found).padEnd(12)}  ${name}`)
  }
  console.log(missed === 0 ? `all ${mutants.length} mutants were detected` : `${missed} mutants were missed`)
  return missed === 0 ? 0 : 1
}

function run(tests, mutant, stdio) {
  const env = { ...process.env, SIM_SEEDS: values.seeds, SIM_FIRST: values.first, SIM_MUTANT: mutant }
  return spawnSync(bin('vitest'), ['run', ...tests], { cwd: root, env, stdio, encoding: 'utf8' })
}

function fail(message) {
  console.error(`sim: ${message}`)
  process.exit(1)
}
