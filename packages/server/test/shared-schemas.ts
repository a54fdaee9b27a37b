// Setup of every test worker: compiles each JSON schema of the service once, not once per app. The two compilers of
// Fastify take most of the time in which an app gets ready, and most tests start one.

import { createRequire } from 'node:module'

type Compile = (route: object) => unknown
type Build = (sharedSchemas: object, options: object) => Compile
type Select = (() => Build) & { shared?: true }

const require = createRequire(createRequire(import.meta.url).resolve('fastify'))

for (const name of ['@fastify/ajv-compiler', '@fastify/fast-json-stringify-compiler']) {
  const select = require(name) as Select
  const loaded = require.cache[require.resolve(name)]
  if (select.shared || loaded === undefined) continue // done by an earlier file of this worker
  const build = select()
  const buildOnce = memoized((shared: object, options: object) => memoized(build(shared, options)))
  loaded.exports = Object.assign(() => buildOnce, select, { shared: true })
}

/** Remembers results by the JSON of the arguments. */
function memoized<Args extends object[], Result>(work: (...args: Args) => Result): (...args: Args) => Result {
  const results = new Map<string, Result>()
  return (...args) => {
    const key = JSON.stringify(args)
    const known = results.get(key)
    if (known !== undefined) return known
    const result = work(...args)
    results.set(key, result)
    return result
  }
}
