// `npm run sim`: runs the simulated fleet with any number of seeds, or with mutants of the code.

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { bin, installPackages, root } from './setup.mjs'

const HELP = `Usage: npm run sim -- [options]

  --seeds N    number of runs (default 200)
  --first N    seed of the first run (default 1): replays a failed run
  --mutants    mutation test: the simulation must detect each known bug within the seeds
`

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '200' },
    first: { type: 'string', default: '1' },
    mutants: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
for (const name of ['seeds', 'first']) {
  if (!/^\d+$/.test(values[name])) fail(`--${name} ${values[name]}: give a whole number`)
}
if (values.help) {
  console.log(HELP)
  process.exit(0)
}
installPackages()
process.exitCode = values.mutants ? runMutants() : runSeeds()

function runSeeds() {
  const startedMs = performance.now()
  const { status } = simulate('', 'inherit')
  const rate = (Number(values.seeds) * 1000) / (performance.now() - startedMs)
  if (status === 0) console.log(`${values.seeds} seeds, 0 violations, ${rate.toFixed(1)} seeds/s`)
  return status ?? 1
}

/** Runs the simulation once per mutant; each is a plausible bug in the lease, guard or pair code. */
function runMutants() {
  const mutants = JSON.parse(readFileSync(join(root, 'packages/sluice/test/simulation/mutants.json'), 'utf8'))
  let missed = 0
  for (const { name } of mutants) {
    const { status, stdout, stderr } = simulate(name, 'pipe')
    const output = `${stdout}${stderr}`
    const [, seed] = /seed (\d+); replay/.exec(output) ?? []
    if (status !== 0 && seed === undefined) fail(`the mutant "${name}" could not be run:\n${output}`)
    if (status === 0) missed += 1
    console.log(`${status === 0 ? 'MISSED' : `seed ${seed}`.padEnd(8)}  ${name}`)
  }
  console.log(missed === 0 ? `all ${mutants.length} mutants were detected` : `${missed} mutants were missed`)
  return missed === 0 ? 0 : 1
}

function simulate(mutant, stdio) {
  const env = { ...process.env, SIM_SEEDS: values.seeds, SIM_FIRST: values.first, SIM_MUTANT: mutant }
  const args = [
    'run',
    'packages/sluice/test/simulation/simulation.test.ts',
    'packages/sluice/test/simulation/regions.test.ts',
    'packages/sluice/test/simulation/pairs.test.ts',
  ]
  return spawnSync(bin('vitest'), args, { cwd: root, env, stdio, encoding: 'utf8' })
}

function fail(message) {
  console.error(`sim: ${message}`)
  process.exit(1)
}
