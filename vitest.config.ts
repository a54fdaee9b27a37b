import { defineConfig, type Plugin } from 'vitest/config'
import mutants from './packages/sluice/test/simulation/mutants.json' with { type: 'json' }

// The `source` condition makes tests run on the TypeScript of every workspace: no build step between edit and test.
export default defineConfig({
  plugins: mutation(process.env.SIM_MUTANT),
  resolve: { conditions: ['source'] },
  ssr: { resolve: { conditions: ['source'] } },
  test: {
    include: ['packages/*/{src,test}/**/*.test.ts', 'scripts/**/*.test.ts', '{bench,fleet}/src/**/*.test.ts'],
    maxWorkers: 2, // most tests wait for servers that they have started
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
})

/** For `npm run sim -- --mutants`: the tests see a copy of the sources with one mistake in it. */
function mutation(name: string | undefined): Plugin[] {
  const mutant = mutants.find((one) => one.name === name)
  if (mutant === undefined) return []
  const { file, from, to } = mutant
  return [
    {
      name: 'mutation',
      enforce: 'pre',
      transform(code, id) {
        if (!id.endsWith(`packages/sluice/src/${file}`)) return undefined
        if (code.split(from).length !== 2) throw new Error(`"${from}" does not stand once in ${file}`)
        return code.replace(from, () => to)
      },
    },
  ]
}
