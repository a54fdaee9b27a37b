// Random targets against find-my-way, the router of Fastify, with every option that makes it take more targets for a
// route, and behind a proxy that has resolved dot segments: a rule with the pattern of the route holds for them all.

import { createRequire } from 'node:module'
import { createLimiter } from 'sluice'
import { seededRandom } from 'sluice/testing'
import { expect, test } from 'vitest'

type Router = {
  on(method: string, path: string, handler: () => void): void
  find(method: string, path: string): { readonly store: unknown } | null
}

const require = createRequire(import.meta.url)
const findMyWay = createRequire(require.resolve('fastify'))('find-my-way') as (options: object) => Router

const RUNS = Number(process.env.FUZZ_RUNS ?? 2000)
const OPTIONS = ['ignoreTrailingSlash', 'ignoreDuplicateSlashes', 'useSemicolonDelimiter'] as const
const PATTERNS = ['/files/:id', '/users/:id/posts', '/users/:id/:post', '/login', '/api/login']
const PIECES = [
  ...['/', '/', '//', '/files/', '/users/', '/posts', '/api', '/login', '/x', '/..', '/.', '/../', '/./', '/...'],
  ...['a', ';', ';x', '%2e', '%2E%2e', '%2f', '%5c', '\\', '%3b', '?', '#', '?/', 'LOGIN', 'Files', '%4C', '@', ':'],
]
/** Characters in the place of the first slash: HTTP/1.1 lets a star through, HTTP/2 with a scheme of its own any. */
const FIRST = ['/', '/', '/', '*', 'x', '?', ';', '#', '\\', '%']

const routers = Array.from({ length: 2 ** OPTIONS.length }, (_, bits) => {
  const chosen = OPTIONS.filter((_option, at) => (bits >> at) & 1)
  const options = Object.fromEntries(chosen.map((option) => [option, true]))
  return PATTERNS.map((pattern) => {
    const router = findMyWay({ ...options, caseSensitive: false })
    router.on('GET', pattern, () => {})
    return { pattern, options: chosen.join(', '), router }
  })
}).flat()

const limiters = new Map(
  PATTERNS.map((endpoint_pattern) => {
    const rule = { rule_id: 'route', endpoint_pattern, limit: 1000, window: '1d', scope: 'global' }
    return [endpoint_pattern, createLimiter({ rules: [rule] })]
  }),
)

/** What a proxy may make of a target before the router sees it: as a browser resolves it, or as nginx does. */
function passedOn(target: string): string[] {
  const resolved = (text: string) => {
    const { pathname, search } = new URL(`http://host${text}`)
    return `${pathname}${search}`
  }
  // Proxies refuse such a target.
  if (!target.startsWith('/')) return [target]
  const merged = target.replace(/\/{2,}/g, '/')
  return [target, resolved(target), ...(target.includes('\\') ? [] : [resolved(merged)])]
}

test('a target that is routed meets the rule of its route', () => {
  const random = seededRandom(17)
  const escaped: string[] = []
  for (let run = 0; run < RUNS; run += 1) {
    const pieces = Array.from({ length: random.between(1, 7) }, () => PIECES[random.between(0, PIECES.length - 1)])
    const target = `${FIRST[random.between(0, FIRST.length - 1)]}${pieces.join('')}`
    for (const { pattern, options, router } of routers) {
      const seen = passedOn(target).find((path) => router.find('GET', path) !== null)
      if (seen === undefined) continue
      const { outcomes } = limiters.get(pattern)?.checkSync({ method: 'GET', path: target }) ?? {}
      if (outcomes?.length !== 1) escaped.push(`${target} is ${pattern}, passed on as ${seen} (${options})`)
    }
  }
  expect(escaped).toEqual([])
})
