// Attempts to bypass a limit, each over a raw connection to every framework with its own router. The same application
// without a limiter shows which targets are routed; all of them must be refused. The results are written to
// docs/reference/bypass-attempts.md: `npx vitest run packages/sluice/test/middleware/bypass.test.ts -u`.

import { once } from 'node:events'
import type { Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { createLimiter } from 'sluice'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { FRAMEWORKS, LENIENT, type Options, type Routes, stop } from './frameworks.ts'

type Attempt = {
  readonly what: string
  /** The plain path whose limit is spent. */
  readonly path: string
  readonly target?: string
  readonly method?: string
  readonly lines?: readonly string[]
  /** A different path: it must match the rules of the pattern, but has its own bucket. */
  readonly other?: boolean
}

const PATHS: readonly Attempt[] = [
  { what: 'upper case', path: '/login', target: '/LOGIN' },
  { what: 'case of an escaped letter', path: '/login', target: '/%4Cogin' },
  { what: 'an escaped letter', path: '/login', target: '/%6cogin' },
  { what: 'a double escape', path: '/login', target: '/%256cogin' },
  { what: 'a trailing slash', path: '/login', target: '/login/' },
  { what: 'several trailing slashes', path: '/login', target: '/login//' },
  { what: 'a doubled slash in front', path: '/login', target: '//login' },
  { what: 'a doubled slash inside', path: '/api/login', target: '/api//login' },
  { what: 'a dot segment', path: '/api/login', target: '/api/./login' },
  { what: 'an escaped dot segment', path: '/api/login', target: '/api/%2e/login' },
  { what: 'a parent segment', path: '/login', target: '/x/../login' },
  { what: 'an escaped parent segment', path: '/login', target: '/x/%2e%2E/login' },
  { what: 'above the root', path: '/login', target: '/../login' },
  { what: 'an escaped slash', path: '/api/login', target: '/api%2Flogin' },
  { what: 'a backslash', path: '/api/login', target: '/api\\login' },
  { what: 'a backslash before a fragment', path: '/api/login', target: '/api\\login#' },
  { what: 'an escaped backslash', path: '/api/login', target: '/api%5clogin' },
  { what: 'parameters', path: '/login', target: '/login;x=1' },
  { what: 'parameters of a segment', path: '/api/login', target: '/api;x=1/login' },
  { what: 'a query', path: '/login', target: '/login?x=/../other' },
  { what: 'an empty query', path: '/login', target: '/login?' },
  { what: 'a fragment', path: '/login', target: '/login#x' },
  { what: 'a non-ASCII space', path: '/login', target: '/login\u00a0' },
  { what: 'an escaped NUL', path: '/login', target: '/login%00' },
  { what: 'an escaped line break', path: '/login', target: '/login%0d%0a' },
  { what: 'Unicode, raw and in another case', path: '/caf%C3%A9', target: '/CAF\u00c9' },
  { what: 'Unicode in another case', path: '/caf%C3%A9', target: '/caf%C3%89' },
  { what: 'Unicode, escapes in lower case', path: '/caf%C3%A9', target: '/caf%c3%a9' },
  { what: 'Unicode, decomposed', path: '/caf%C3%A9', target: '/cafe%CC%81', other: true },
  { what: 'full-width letters', path: '/login', target: '/%EF%BD%8Cogin' },
  { what: 'absolute form', path: '/login', target: 'http://other.example/login' },
  { what: 'absolute form, upper case', path: '/login', target: 'HTTP://other.example/login' },
  {
    what: 'absolute form, a query before the path',
    path: '/login',
    target: 'http://other.example?x/login',
    other: true,
  },
  { what: 'absolute form, another scheme', path: '/login', target: 'ftp://other.example/login' },
  { what: 'an authority', path: '/login', target: '//other.example/login' },
  { what: 'an authority with a user, and a fragment', path: '/login', target: '//me@other.example/login#' },
  { what: 'a star instead of the first slash', path: '/login', target: '*login' },
  { what: 'a star, then a name', path: '/files/a', target: '*files/7', other: true },
  { what: 'a star, an escaped letter and a query', path: '/login', target: '*%6cogin?x' },
  { what: 'a star before the slash', path: '/login', target: '*/login' },
  { what: 'a letter instead of the first slash', path: '/login', target: 'xlogin' },
  { what: 'a question mark instead of the first slash', path: '/login', target: '?login' },
  { what: 'a semicolon instead of the first slash', path: '/login', target: ';login' },
  { what: 'no slash', path: '/login', target: 'login' },
  { what: 'an empty name', path: '/files/a', target: '/files/', other: true },
  { what: 'a dot segment as the name', path: '/files/a', target: '/files/..', other: true },
  { what: 'a name with parameters only', path: '/files/a', target: '/files/;x', other: true },
  { what: 'a name with a backslash', path: '/files/a', target: '/files/a\\b', other: true },
  { what: 'a name with an escaped slash', path: '/files/a', target: '/files/a%2fb', other: true },
  { what: 'an empty name and a slash', path: '/files/a', target: '/files//', other: true },
  { what: 'an empty name and two slashes', path: '/files/a', target: '/files///', other: true },
  { what: 'an empty name after a parent segment', path: '/files/a', target: '/files/x/..//', other: true },
  { what: 'an empty name after two parent segments', path: '/files/a', target: '/files/x/y/../..//', other: true },
  { what: 'an empty name, slashes everywhere', path: '/files/a', target: '//files//', other: true },
  { what: 'a name and parameters with a slash', path: '/files/a', target: '/files/a;x/y', other: true },
  { what: 'no name and parameters with a slash', path: '/files/a', target: '/files/;/x/y', other: true },
  { what: 'an empty name inside', path: '/users/7/posts', target: '/users//posts', other: true },
  { what: 'an empty name inside, slashes around', path: '/users/7/posts', target: '//users///posts//', other: true },
  { what: 'an empty name inside and a slash', path: '/users/7/posts', target: '/users//posts/', other: true },
  { what: 'an escaped slash, then a backslash', path: '/users/7/posts', target: '/users/a%2fb\\posts#', other: true },
  { what: 'HEAD instead of GET', path: '/login', method: 'HEAD' },
  { what: 'a method override header', path: '/login', lines: ['X-HTTP-Method-Override: POST'] },
  { what: 'a path override header', path: '/login', lines: ['X-Original-URL: /other', 'X-Rewrite-URL: /other'] },
]

type Spoof = { readonly what: string; readonly lines: readonly string[] }

/** Sent by a client directly. */
const UNTRUSTED: readonly Spoof[] = [
  { what: 'X-Forwarded-For', lines: ['X-Forwarded-For: 198.51.100.1'] },
  { what: 'X-Forwarded-For, a list', lines: ['X-Forwarded-For: 198.51.100.1, 198.51.100.2'] },
  { what: 'X-Forwarded-For, twice', lines: ['X-Forwarded-For: 198.51.100.1', 'X-Forwarded-For: 198.51.100.2'] },
  { what: 'Forwarded', lines: ['Forwarded: for=198.51.100.1'] },
  { what: 'other headers of proxies', lines: ['X-Real-IP: 198.51.100.1', 'CF-Connecting-IP: 198.51.100.1'] },
  {
    what: 'more headers of proxies',
    lines: ['True-Client-IP: 198.51.100.1', 'X-Client-IP: 198.51.100.1', 'Via: 1.1 a'],
  },
]

/** Forwarded by a trusted proxy for a client at 203.0.113.7 or 2001:db8:0:1::7. */
const TRUSTED: readonly Spoof[] = [
  { what: 'an address in front', lines: ['X-Forwarded-For: 198.51.100.1, 203.0.113.7'] },
  { what: 'the address of a trusted proxy in front', lines: ['X-Forwarded-For: 127.0.0.1, 203.0.113.7'] },
  { what: 'two lines', lines: ['X-Forwarded-For: 198.51.100.1', 'X-Forwarded-For: 203.0.113.7'] },
  { what: 'garbage in front', lines: ['X-Forwarded-For: "; drop, unknown, 203.0.113.7'] },
  { what: 'another port', lines: ['X-Forwarded-For: 203.0.113.7:50000'] },
  { what: 'a mapped address', lines: ['X-Forwarded-For: ::ffff:203.0.113.7'] },
  { what: 'a mapped address in hex', lines: ['X-Forwarded-For: ::FFFF:cb00:7107'] },
  { what: 'a mapped address in full', lines: ['X-Forwarded-For: 0:0:0:0:0:ffff:203.0.113.7'] },
  {
    what: 'Forwarded beside the header in use',
    lines: ['Forwarded: for=198.51.100.1', 'X-Forwarded-For: 203.0.113.7'],
  },
  { what: 'another address of its /64', lines: ['X-Forwarded-For: 2001:db8:0:1:ffff::1'] },
  { what: 'its own address, in another notation', lines: ['X-Forwarded-For: [2001:0DB8::1:0:0:0:7]:443'] },
  { what: 'its own address, with a zone', lines: ['X-Forwarded-For: 2001:db8:0:1::7%eth0'] },
]

/** The same in the header of RFC 7239. */
const FORWARDED: readonly Spoof[] = [
  { what: 'an address in front', lines: ['Forwarded: for=198.51.100.1, for=203.0.113.7'] },
  { what: 'an open quote in front', lines: ['Forwarded: for="198.51.100.1, for=203.0.113.7'] },
  { what: 'two lines', lines: ['Forwarded: for=198.51.100.1', 'Forwarded: for=203.0.113.7;proto=http'] },
  {
    what: 'X-Forwarded-For beside the header in use',
    lines: ['X-Forwarded-For: 198.51.100.1', 'Forwarded: for=203.0.113.7'],
  },
  { what: 'quotes, brackets, a port', lines: ['Forwarded: For="[::ffff:203.0.113.7]:50000"'] },
  { what: 'another address of its /64', lines: ['Forwarded: for="[2001:db8:0:1::8]"'] },
]

const hello = () => ({ status: 200, body: 'hello' })
const ROUTES: Routes = {
  '/login': hello,
  '/api/login': hello,
  '/files/:name': hello,
  '/users/:id/posts': hello,
  '/café': hello,
  '/caf%C3%A9': hello,
}
const ONE_A_DAY = { limit: 1, window: '1d' }
const [V4, V6] = ['203.0.113.7', '2001:db8:0:1::7']

/** Status of a request written to the connection unmodified. */
async function statusOf(server: Server, target: string, method = 'GET', lines: readonly string[] = []) {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  const head = [`${method} ${target} HTTP/1.1`, 'Host: localhost', 'Connection: close', ...lines, '', '']
  socket.write(Buffer.from(head.join('\r\n'), 'latin1'))
  let answer = ''
  socket.setEncoding('latin1').on('data', (text) => {
    answer += text
  })
  await once(socket, 'close')
  return Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1])
}

type Column = {
  readonly name: string
  readonly bare: Server
  /** One rule per path. */
  readonly ruled: Server
  /** One rule with a bucket per path. */
  readonly keyed: Server
  readonly direct: Server
  readonly behind: Server
  readonly behindForwarded: Server
}

const columns: Column[] = []
const all: Server[] = []

beforeAll(async () => {
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const patterns = Object.keys(ROUTES).filter((path) => path !== '/café') // rules use escapes
  const rules = patterns.map((endpoint_pattern, index) => {
    return { rule_id: `r${index}`, endpoint_pattern, method: 'GET', scope: 'per_ip', ...ONE_A_DAY }
  })
  for (const { name, serve } of [...FRAMEWORKS, ...LENIENT].filter(({ registersOptions }) => !registersOptions)) {
    const start = async (...limits: Options[]) => {
      const server = await serve(limits, ROUTES)
      all.push(server)
      return server
    }
    const trustProxy = ['127.0.0.0/8']
    const keyed = createLimiter({ rules: [{ rule_id: 'paths', scope: 'per_endpoint', ...ONE_A_DAY }] })
    const column: Column = {
      name,
      bare: await start(),
      ruled: await start({ limiter: createLimiter({ rules }) }),
      keyed: await start({ limiter: keyed }),
      direct: await start(ONE_A_DAY),
      behind: await start({ ...ONE_A_DAY, trustProxy }),
      behindForwarded: await start({ ...ONE_A_DAY, trustProxy, proxyHeader: 'forwarded' }),
    }
    for (const path of ['/login', '/api/login', '/files/a', '/users/7/posts', '/caf%C3%A9']) {
      expect([await statusOf(column.ruled, path), await statusOf(column.keyed, path)]).toEqual([200, 200])
    }
    await statusOf(column.direct, '/login')
    for (const ip of [V4, V6]) {
      await statusOf(column.behind, '/login', 'GET', [`X-Forwarded-For: ${ip}`])
      await statusOf(column.behindForwarded, '/login', 'GET', [`Forwarded: for="${ip.includes(':') ? `[${ip}]` : ip}"`])
    }
    columns.push(column)
  }
})

afterAll(async () => {
  vi.restoreAllMocks()
  await Promise.all(all.map(stop))
})

const pathRows: string[] = []
const spoofRows: string[] = []

describe('a path', () => {
  test.each(PATHS)('$what: $target', async ({ what, path, target = path, method, lines, other }) => {
    const cells: string[] = []
    for (const { name, bare, ruled, keyed } of columns) {
      const routed = await statusOf(bare, target, method, lines)
      const refused = await statusOf(ruled, target, method, lines)
      const bucket = await statusOf(keyed, target, method, lines)
      if (routed === 200) {
        expect([name, refused], 'a routed target is refused').toEqual([name, 429])
        if (!other) expect([name, bucket], 'and shares the bucket').toEqual([name, 429])
      }
      cells.push(refused === routed ? `${routed}` : `${routed} → ${refused}`)
    }
    const sent = [`${method ?? 'GET'} ${target}`, ...(lines ?? [])]
    pathRows.push(`| ${what} | ${code([path])} | ${code(sent)} | ${cells.join(' | ')} |`)
  })
})

describe('an address', () => {
  test.each([
    ...UNTRUSTED.map((spoof) => ({ ...spoof, from: 'direct' as const, whose: 'no proxy is trusted' })),
    ...TRUSTED.map((spoof) => ({ ...spoof, from: 'behind' as const, whose: 'behind a trusted proxy' })),
    ...FORWARDED.map((spoof) => ({ ...spoof, from: 'behindForwarded' as const, whose: 'the same with `Forwarded`' })),
  ])('$whose: $what', async ({ what, lines, from, whose }) => {
    for (const column of columns) {
      expect([column.name, await statusOf(column[from], '/login', 'GET', lines)]).toEqual([column.name, 429])
    }
    spoofRows.push(`| ${whose} | ${what} | ${code(lines)} |`)
  })
})

const isDocumented = process.version.startsWith('v20.')

// The parser of node:http decides which targets reach a router, and changes with the version of Node.js.
test.runIf(isDocumented)('docs/reference/bypass-attempts.md has all results', async () => {
  const names = columns.map(({ name }) => name)
  const page = `${INTRODUCTION}
| attempt | limit spent at | sent | ${names.join(' | ')} |
|---|---|---|${names.map(() => '---|').join('')}
${pathRows.join('\n')}
${ADDRESSES}
| where | attempt | sent |
|---|---|---|
${spoofRows.join('\n')}
`
  await expect(page).toMatchFileSnapshot('../../../../docs/reference/bypass-attempts.md')
})

/** Table cell; non-ASCII bytes are escaped. */
function code(lines: readonly string[]): string {
  const visible = (byte: string) => `\\x${byte.charCodeAt(0).toString(16).toUpperCase()}`
  return lines.map((line) => `\`${line.replace(/[^\x20-\x7e]/g, visible)}\``).join('<br>')
}

const INTRODUCTION = `# Bypass attempts

Generated by \`packages/sluice/test/middleware/bypass.test.ts\`, which makes each attempt over a raw connection to every
framework with its own router, on Node.js 20. Each route has a rule; a plain request spends its limit, then the attempt
is made. **Every target that a router routes is refused**, also by a rule with one bucket per path (\`scope:
per_endpoint\`), where only names of \`/files\` and \`/users\` and a query before the path count as different paths.

Each cell shows the status without a limiter, and the status with one if it differs:

| | without | with a limiter |
|---|---|---|
| \`200 → 429\` | the router routes it | refused |
| \`404 → 429\` | no route matches | refused, because other routers do route it |
| \`500 → 429\` | the application cannot parse it | refused before the application sees it |
| \`404\` | no route matches | no rule matches; in NestJS, guards run for routes only |
| \`400\` | the server rejects it | |

In \`fetch handler\` and \`node:http\` the application compares the path of \`new URL\`.

## Paths
`

const ADDRESSES = `
## Addresses

Each client spends its limit and then makes the attempt: every framework refused it with 429. Behind the proxy, the
client is \`${V4}\` or, in attempts with an IPv6 address, \`${V6}\`; \`trustProxy\` lists the proxy.
`
