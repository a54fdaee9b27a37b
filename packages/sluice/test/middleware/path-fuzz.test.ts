// Random targets against find-my-way, the router of Fastify, with every combination of lenient options, and behind a
// proxy that resolves dot segments: a rule with the pattern of the route matches every routed target.

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
/** First characters of targets: HTTP/1.1 accepts a star, HTTP/2 with a custom scheme any. */
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

/** Forms in which a proxy may forward a target: unchanged, resolved like a browser, or like nginx. */
function forwardedForms(target: string): string[] {
  const resolved = (text: string) => {
    const { pathname, search } = new URL(`http://host${text}`)
    return `${pathname}${search}`
  }
  // Proxies reject such a target.
  if (!target.startsWith('/')) return [target]
  const merged = target.replace(/\/{2,}/g, '/')
  return [target, resolved(target), ...(target.includes('\\') ? [] : [resolved(merged)])]
}

test('every routed target matches the rule of its route', () => {
  const random = seededRandom(17)
  const bypasses: string[] = []
  for (let run = 0; run < RUNS; run += 1) {
    const pieces = Array.from({ length: random.between(1, 7) }, () => PIECES[random.between(0, PIECES.length - 1)])
    const target = `${FIRST[random.between(0, FIRST.length - 1)]}${pieces.join('')}`
    for (const { pattern, options, router } of routers) {
      const seen = forwardedForms(target).find((path) => router.find('GET', path) !== null)
      if (seen === undefined) continue
      const { outcomes } = limiters.get(pattern)?.checkSync({ method: 'GET', path: target }) ?? {}
      if (outcomes?.length !== 1) bypasses.push(`${target} is ${pattern}, forwarded as ${seen} (${options})`)
    }
  }
  expect(bypasses).toEqual([])
})
