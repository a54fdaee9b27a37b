import { createHash } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { defineConfig, type Plugin } from 'vitest/config'
import mutants from './packages/sluice/test/simulation/mutants.json' with { type: 'json' }
import { SlowestFirst, testsWithServers } from './scripts/test-files.ts'

const WORKERS = Math.min(6, availableParallelism() * 3)
const INCLUDED = ['packages/*/{src,test}/**/*.test.ts', 'scripts/**/*.test.ts', '{bench,fleet}/src/**/*.test.ts']
const EXCLUDED = ['**/node_modules/**', ...(process.env.SLUICE_TESTS === 'no-servers' ? testsWithServers() : [])]
/** Tests of deadlines, or with stubs of Node's globals: each runs alone in a process of its own, after all others. */
const ALONE = [
  'packages/server/test/cold-start.test.ts',
  'packages/sluice/test/outages.test.ts',
  'packages/sluice/src/clock.test.ts', // a socket that another file left closing fails without `process`
]

// The `source` condition makes tests run on the TypeScript of every workspace: no build step between edit and test.
export default defineConfig({
  plugins: mutation(process.env.SIM_MUTANT),
  resolve: { conditions: ['source'] },
  ssr: { resolve: { conditions: ['source'] } },
  test: {
    restoreMocks: true, // files share their worker's globals
    unstubGlobals: true,
    unstubEnvs: true,
    execArgv: ['--max-semi-space-size=64'], // less garbage collection: a twentieth of the run
    globalSetup: ['scripts/test-run.ts'],
    setupFiles: ['packages/server/test/shared-schemas.ts'],
    sequence: { sequencer: SlowestFirst },
    projects: [
      // Three workers per core, because most tests wait for servers. Without isolation a worker loads each module
      // once, not once per file, which saves a quarter of the run.
      project('tests', INCLUDED, [...EXCLUDED, ...ALONE], { isolate: false, maxWorkers: WORKERS, groupOrder: 0 }),
      project('alone', ALONE, EXCLUDED, { isolate: true, maxWorkers: 1, groupOrder: 1 }),
    ],
    testTimeout: 180_000, // no promise: a hung test ends, and a busy machine gets its time
    hookTimeout: 180_000,
  },
})

type Scheduling = { isolate: boolean; maxWorkers: number; groupOrder: number }

function project(name: string, include: string[], exclude: string[], scheduling: Scheduling) {
  const { groupOrder, ...rest } = scheduling
  return { extends: true as const, test: { name, include, exclude, ...rest, sequence: { groupOrder } } }
}

/** Recomputes the SHA-1 of changed Lua scripts: Redis runs what it stores under the hash. */
function withHashes(code: string): string {
  return code.replace(/sha1: '\w+',(\s+text: `((?:[^\\`]|\\.)*)`)/g, (_, text: string, literal: string) => {
    const script = literal.replace(/\\(\\|`|\$\{)/g, '$1')
    return `sha1: '${createHash('sha1').update(script).digest('hex')}',${text}`
  })
}

/** For `npm run sim -- --mutants`: puts one known mistake into the sources that the tests load. */
function mutation(name: string | undefined): Plugin[] {
  const mutant = mutants.find((candidate) => candidate.name === name)
  if (mutant === undefined) return []
  const { file, from, to } = mutant
  return [
    {
      name: 'mutation',
      enforce: 'pre',
      transform(code, id) {
        if (!id.endsWith(`packages/sluice/src/${file}`)) return undefined
        if (code.split(from).length !== 2) throw new Error(`"${from}" must occur exactly once in ${file}`)
        return withHashes(code.replace(from, () => to))
      },
    },
  ]
}
