// Style as a test: what a reviewer would otherwise have to say again and again. A rule that is broken somewhere for a
// good reason has an exception below; an exception that is no longer needed fails, so the table only shrinks.

import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'

/** Rule → file → how often the rule is broken there. Lower a number when you mend something; never raise one. */
const EXCEPTIONS: Partial<Record<RuleName, Record<string, number>>> = {}

const FILE_LINES_MAX = 400
const TEST_FILE_LINES_MAX = 600
const FUNCTION_LINES_MAX = 60
const LINE_LENGTH_MAX = 120
const README_LINES_MAX = 150

type Source = { path: string; lines: string[]; isTest: boolean; isLua: boolean }
type Finding = { line: number; fix: string }
type Rule = { applies?: (source: Source) => boolean; find: (source: Source) => Finding[] }
type RuleName = keyof typeof RULES

const RULES = {
  'a file is short': {
    find: ({ lines, isTest }) => {
      const max = isTest ? TEST_FILE_LINES_MAX : FILE_LINES_MAX
      return lines.length > max ? [{ line: lines.length, fix: `split it: at most ${max} lines` }] : []
    },
  },
  'a function is short': {
    applies: ({ isTest }) => !isTest,
    find: (source) =>
      functionsOf(source)
        .filter(({ length }) => length > FUNCTION_LINES_MAX)
        .map(({ line, length }) => ({ line, fix: `split it: ${length} lines, at most ${FUNCTION_LINES_MAX}` })),
  },
  'a line is short': {
    find: eachLine((line) => [...line].length > LINE_LENGTH_MAX, `break it: at most ${LINE_LENGTH_MAX} characters`),
  },
  'a file begins by saying what it guarantees': {
    applies: ({ path, isTest }) => !isTest && !path.endsWith('.config.ts'),
    find: ({ lines, isLua }) => {
      const first = lines[0]?.startsWith('#!') ? lines[1] : lines[0]
      const isComment = isLua ? first?.startsWith('--') : /^\/[/*]/.test(first ?? '')
      return isComment ? [] : [{ line: 1, fix: 'begin with a comment that says what the file guarantees' }]
    },
  },
  'time comes from a clock that is handed in': {
    applies: ({ path }) => basename(path) !== 'clock.ts',
    find: eachCode(/\bDate\.now\(/, 'take a Clock: systemClock for spans of time, wallClock for the time of day'),
  },
  'nothing repeats by itself': {
    find: eachCode(
      /\bsetInterval\(/,
      'a setTimeout that is set again once its work is done, unref() and cleared on close',
    ),
  },
  'chance is seeded': {
    applies: ({ path }) => !path.includes('/testing/') && !path.startsWith('bench/'),
    find: eachCode(/\bMath\.random\(/, 'node:crypto, or the seeded random of testing/'),
  },
  'only commands print': {
    applies: ({ path }) => !/^(scripts|bench|examples)\/|\/cli\//.test(path),
    find: eachCode(/\bconsole\.log\(/, 'the logger; in a library, nothing'),
  },
  'types are known': {
    find: eachCode(/(:|\bas|<)\s*any\s*([,;)\]}>=|&[]|$)|, any>/, 'unknown, and parse it'),
  },
  'no enums': {
    find: eachCode(/^\s*(export\s+)?(declare\s+)?(const\s+)?enum\s+\w/, 'a union of literals, or an `as const` table'),
  },
  'exports have names': {
    applies: ({ path }) => !path.endsWith('.config.ts'),
    find: eachCode(/^export default\b/, 'a named export'),
  },
  'nothing is left for later': {
    find: eachLine((line) => /\b(TODO|FIXME)\b/.test(line), 'do it, or open an issue and link it'),
  },
  'the library does not know the server': {
    applies: ({ path }) => path.startsWith('packages/sluice/'),
    find: eachCode(/['"](@sluice\/server|[^'"]*packages\/server)/, 'move what both need into the library'),
  },
  'imports name the file they mean': {
    applies: ({ path }) => path.endsWith('.ts'),
    find: eachCode(/\b(from|import)\s*\(?\s*'\.[^']*(?<!\.(ts|mjs|json))'/, "end the path in '.ts'"),
  },
  'tests do not sleep': {
    applies: ({ isTest }) => isTest,
    find: eachCode(
      /\bsetTimeout\(\s*(r|res|resolve|done)\b|\bsleep\(|timers\/promises/,
      'a fake clock, or wait for what is expected to happen',
    ),
  },
} satisfies Record<string, Rule>

const tracked = projectFiles()

describe.skipIf(tracked.length === 0)('the sources are tidy', () => {
  const sources = tracked.filter(isSource).map(readSource)

  it.each(Object.entries<Rule>(RULES))('%s', (name, rule) => {
    const allowed = EXCEPTIONS[name as RuleName] ?? {}
    const problems = sources.flatMap((source) => {
      const findings = rule.applies?.(source) === false ? [] : rule.find(source)
      return judge(source.path, findings, allowed[source.path] ?? 0)
    })
    const gone = Object.keys(allowed).filter((path) => !tracked.includes(path))
    expect([...problems, ...gone.map((path) => `${path}: gone, remove its exception`)]).toEqual([])
  })

  it('a file or folder is named by the noun it holds', () => {
    const vague = /^(utils?|helpers?|common|managers?)$/
    expect(tracked.filter((path) => path.split('/').some((part) => vague.test(part.split('.')[0] ?? '')))).toEqual([])
  })

  it('the README fits on a few screens', () => {
    const lines = existsSync('README.md') ? readLines('README.md').length : 0
    expect(lines).toBeLessThanOrEqual(README_LINES_MAX)
  })

  it('every relative link of the documentation leads somewhere', () => {
    const pages = tracked.filter((path) => /^(docs\/.*|[^/]+)\.md$/.test(path))
    expect(pages.flatMap((path) => linksOf(path).filter((link) => !existsSync(link)))).toEqual([])
  })
})

describe('the ratchet', () => {
  const finding = { line: 7, fix: 'mend it' }

  it.each([
    { found: 0, allowed: 0, says: [] },
    { found: 1, allowed: 1, says: [] },
    { found: 1, allowed: 0, says: ['a.ts:7: mend it'] },
    { found: 2, allowed: 1, says: ['a.ts:7: mend it', 'a.ts:7: mend it'] },
    { found: 1, allowed: 2, says: ['a.ts: lower its exception from 2 to 1'] },
  ])('$found found, $allowed allowed', ({ found, allowed, says }) => {
    expect(judge('a.ts', Array(found).fill(finding), allowed)).toEqual(says)
  })

  it.each([
    ['export function plain(a: number): void {', '  work()', '}'],
    ['export function wide(', '  a: number,', '): void {', '  work()', '}'],
    ['  async method(): Promise<void> {', '    if (a) {', '      b()', '    }', '  }'],
    ['const arrow = (a) => {', '  work()', '}'],
    ['  format(a: number): string {', '    return call(a, {', '      b,', '    })', '  }'],
    ['local function lua(a)', '  return a', 'end'],
  ])('sees the function that begins with %s', (...lines) => {
    const source = { path: 'x', lines, isTest: false, isLua: lines.at(-1) === 'end' }
    expect(functionsOf(source)).toHaveLength(1)
  })

  it.each<[RuleName, string, string]>([
    ['a line is short', 'x'.repeat(121), 'é'.repeat(120)],
    ['a file begins by saying what it guarantees', "import 'x'", '// Why.'],
    ['time comes from a clock that is handed in', 'const t = Date.now()', '// Date.now() would be wrong here'],
    ['nothing repeats by itself', 'setInterval(f, 1)', 'clearInterval(t)'],
    ['chance is seeded', 'const r = Math.random()', 'const r = random()'],
    ['only commands print', "console.log('hi')", 'log.info(1) // not console.log()'],
    ['types are known', 'let a: any = 1', "const title = 'as any other'"],
    ['types are known', 'f(a as any)', 'const any = true'],
    ['types are known', 'const list: any[] = []', 'const any: unknown = 1'],
    ['types are known', 'new Map<string, any>()', 'pick(a, any)'],
    ['no enums', 'export const enum Colour {', '/* an enum would do */'],
    ['exports have names', 'export default f', 'export const f = 1'],
    ['nothing is left for later', '// TODO', '// to do'],
    ['the library does not know the server', "import { x } from '@sluice/server'", "import { x } from './server.ts'"],
    ['imports name the file they mean', "import { x } from './x.js'", "import { x } from './x.ts'"],
    ['imports name the file they mean', "await import('../x')", "import { x } from 'x'"],
    ['tests do not sleep', 'await new Promise((r) => setTimeout(r, 10))', 'setTimeout(() => server.close(), 10)'],
    ['tests do not sleep', 'await sleep(10)', 'clock.advance(10)'],
  ])('%s: finds it in %j and not in %j', (name, bad, good) => {
    const found = (line: string) => RULES[name].find({ path: 'x.ts', lines: [line], isTest: false, isLua: false })
    expect(found(bad)).toHaveLength(1)
    expect(found(good)).toHaveLength(0)
  })
})

/** What is wrong with one file: too many findings, or fewer than its exception allows. */
function judge(path: string, findings: Finding[], allowed: number): string[] {
  if (findings.length > allowed) return findings.map(({ line, fix }) => `${path}:${line}: ${fix}`)
  if (findings.length < allowed) return [`${path}: lower its exception from ${allowed} to ${findings.length}`]
  return []
}

function eachLine(isBad: (line: string) => boolean, fix: string): (source: Source) => Finding[] {
  return ({ lines }) => lines.flatMap((line, index) => (isBad(line) ? [{ line: index + 1, fix }] : []))
}

/** Looks at code only; whole-line and trailing comments may speak of anything. */
function eachCode(pattern: RegExp, fix: string): (source: Source) => Finding[] {
  return (source) => {
    const comment = source.isLua ? /--.*$/ : /^\s*(\/\/|\/?\*).*$|\s\/\/ .*$/
    return eachLine((line) => pattern.test(line.replace(comment, '')), `instead: ${fix}`)(source)
  }
}

/**
 * The functions of a formatted file. A function begins on the line that ends its signature, and ends on the next line
 * that closes a block at the same depth: the formatter makes that true, so no parser is needed.
 */
function functionsOf({ lines, isLua }: Source): { line: number; length: number }[] {
  const starts = isLua
    ? /^\s*(local )?(function\b|[\w.]+ = function\b).*\)$/
    : /^\s*((export )?(default )?(async )?function\b.*|((static|async|get|set|override) )*[#\w]+\(.*\)(: .+)?|\)(: .+)?|.*=>) \{$/
  const ends = isLua ? 'end' : '}'
  return lines.flatMap((line, index) => {
    if (!starts.test(line)) return []
    const indent = /^\s*/.exec(line)?.[0] ?? ''
    const length = lines.slice(index + 1).findIndex((later) => later.startsWith(indent + ends)) + 2
    return length < 2 ? [] : [{ line: index + 1, length }]
  })
}

/** Files that are committed or about to be; none outside a git clone. */
function projectFiles(): string[] {
  try {
    const list = execFileSync('git', ['ls-files', '-coz', '--exclude-standard'], { encoding: 'utf8', stdio: 'pipe' })
    return list.split('\0').filter((path) => path !== '' && existsSync(path))
  } catch {
    return []
  }
}

/** This file names everything that it bans, so it cannot be held to its own rules. */
function isSource(path: string): boolean {
  return /\.(ts|mjs|lua)$/.test(path) && !path.endsWith('.generated.ts') && path !== 'scripts/tidy.test.ts'
}

function readSource(path: string): Source {
  const isTest = path.endsWith('.test.ts') || /\/test\//.test(path)
  return { path, lines: readLines(path), isTest, isLua: path.endsWith('.lua') }
}

function readLines(path: string): string[] {
  return readFileSync(path, 'utf8').replace(/\n$/, '').split('\n')
}

/** Paths, from the root, that the relative links of a page lead to. */
function linksOf(page: string): string[] {
  const prose = readFileSync(page, 'utf8')
    .replace(/^```[\s\S]*?^```/gm, '')
    .replace(/`[^`\n]*`/g, '')
  const targets = [...prose.matchAll(/\]\(([^)\s]+)/g)].map(([, target = '']) => target.replace(/#.*$/, ''))
  return targets
    .filter((target) => target !== '' && !/^[a-z]+:/.test(target))
    .map((target) => join(dirname(page), target))
}
