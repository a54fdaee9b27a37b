// Style rules as tests. A file that breaks a rule for a good reason has an exception below; an exception that is no
// longer needed fails the test, so the table only shrinks.

import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { describeCycles, describeDisorder, documentedLayers, importGraph } from './import-cycles.ts'
import { deadLinks } from './links.ts'

/** Rule → file → number of allowed violations. Lower a number when you fix something; never raise one. */
const EXCEPTIONS: Partial<Record<RuleName, Record<string, number>>> = {}

/** Allowed comment lines with a banned opening, and allowed lines with a banned word. Never raise them. */
const ODD_OPENINGS_MAX = 0
const ODD_WORDS_MAX = 1
const ODD_OPENING = /^\s*(\/\/|\/\*\*?|\*|--(\[\[)?) ?(What|Who|Whoever|Nobody|Of|Why|How) /
const ODD_WORD = /\b(nobody|whoever|left alone|goes without saying|is told)\b/i

const LINE_LENGTH_MAX = 120

type Source = { path: string; lines: string[]; isTest: boolean; isLua: boolean }
type Finding = { line: number; fix: string }
type Rule = { applies?: (source: Source) => boolean; find: (source: Source) => Finding[] }
type RuleName = keyof typeof RULES

const RULES = {
  'a line is short': {
    find: eachLine((line) => [...line].length > LINE_LENGTH_MAX, `break it: at most ${LINE_LENGTH_MAX} characters`),
  },
  'a file begins with a comment': {
    applies: ({ path, isTest }) => !isTest && !path.endsWith('.config.ts'),
    find: ({ lines, isLua }) => {
      const first = lines[0]?.startsWith('#!') ? lines[1] : lines[0]
      const isComment = isLua ? first?.startsWith('--') : /^\/[/*]/.test(first ?? '')
      return isComment ? [] : [{ line: 1, fix: 'begin with a comment that says what the file guarantees' }]
    },
  },
  'time comes from an injected clock': {
    applies: ({ path }) => basename(path) !== 'clock.ts',
    find: eachCode(/\bDate\.now\(/, 'take a Clock: systemClock for spans of time, wallClock for the time of day'),
  },
  'no setInterval': {
    find: eachCode(/\bsetInterval\(/, 'a setTimeout that is set again after its work, with unref(), cleared on close'),
  },
  'random numbers are seeded': {
    applies: ({ path }) => !path.includes('/testing/') && !path.startsWith('bench/'),
    find: eachCode(/\bMath\.random\(/, 'node:crypto, or the seeded random of testing/'),
  },
  'only commands use console.log': {
    applies: ({ path }) => !/^(scripts|bench|examples)\/|\/cli\//.test(path),
    find: eachCode(/\bconsole\.log\(/, 'the logger; in a library, nothing'),
  },
  'no any': {
    find: eachCode(/(:|\bas|<)\s*any\s*([,;)\]}>=|&[]|$)|, any>/, 'unknown, and parse it'),
  },
  'no enums': {
    find: eachCode(/^\s*(export\s+)?(declare\s+)?(const\s+)?enum\s+\w/, 'a union of literals, or an `as const` table'),
  },
  'no default exports': {
    applies: ({ path }) => !path.endsWith('.config.ts'),
    find: eachCode(/^export default\b/, 'a named export'),
  },
  'no TODO comments': {
    find: eachLine((line) => /\b(TODO|FIXME)\b/.test(line), 'do it, or open an issue and link it'),
  },
  'the library does not import the server': {
    applies: ({ path }) => path.startsWith('packages/sluice/'),
    find: eachCode(/['"](@sluice\/server|[^'"]*packages\/server)/, 'move what both need into the library'),
  },
  'imports have a file extension': {
    applies: ({ path }) => /\.tsx?$/.test(path),
    find: eachCode(/\b(from|import)\s*\(?\s*'\.[^']*(?<!\.(tsx?|mjs|json|css))'/, "end the path in '.ts'"),
  },
  'tests do not sleep': {
    applies: ({ isTest }) => isTest,
    find: eachCode(
      /\bsetTimeout\(\s*(r|res|resolve|done)\b|\bsleep\(|timers\/promises/,
      'a fake clock, or wait for the expected result',
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

  it('no file or folder has a vague name such as utils or helpers', () => {
    const vague = /^(utils?|helpers?|common|managers?)$/
    const ours = tracked.filter((path) => !path.startsWith('packages/server/proto/envoy/')) // paths of Envoy's API
    expect(ours.filter((path) => path.split('/').some((part) => vague.test(part.split('.')[0] ?? '')))).toEqual([])
  })

  it('no page has a dead relative link', () => {
    expect(tracked.filter((path) => path.endsWith('.md')).flatMap(deadLinks)).toEqual([])
  })

  const folders = ['packages/server/src', 'packages/sluice/src', 'packages/dashboard/src/pages']
  it.each(folders)('%s: top-level folders form no import cycle', (source) => {
    expect(describeCycles(importGraph(source)).join('\n\n')).toBe('')
  })

  it('packages/dashboard/src: files form no import cycle', () => {
    expect(describeCycles(importGraph('packages/dashboard/src', (path) => path)).join('\n\n')).toBe('')
  })

  it.each(['packages/server/src', 'packages/sluice/src'])(
    '%s: imports follow the order in ARCHITECTURE.md',
    (source) => {
      const layers = documentedLayers(readFileSync('ARCHITECTURE.md', 'utf8'), source)
      expect(describeDisorder(importGraph(source), layers)).toEqual([])
    },
  )

  it('comments begin with a noun or a verb', () => {
    const protos = tracked.filter((path) => path.endsWith('.proto')).map(readSource)
    const lines = [...sources, ...protos].flatMap(numberedLines)
    const odd = lines.filter(({ text }) => ODD_OPENING.test(text)).map(({ place, text }) => `${place}: ${text.trim()}`)
    expect(odd.length, `begin with a noun or a verb:\n${odd.join('\n')}`).toBeLessThanOrEqual(ODD_OPENINGS_MAX)
  })

  it('comments, messages and pages name their subject', () => {
    const pages = tracked.filter((path) => path.endsWith('.md')).map(readSource)
    const odd = [...sources, ...pages].flatMap(numberedLines).filter(({ text }) => ODD_WORD.test(text))
    const list = odd.map(({ place, text }) => `${place}: ${text.trim()}`).join('\n')
    expect(odd.length, `name the component that acts:\n${list}`).toBeLessThanOrEqual(ODD_WORDS_MAX)
  })
})

describe('the documentation is complete', () => {
  const records = readdirSync('docs/decisions').filter((name) => name !== 'README.md')

  it.each(records)('docs/decisions/%s has a numbered title, and context, decision and consequences', (name) => {
    const text = readFileSync(join('docs/decisions', name), 'utf8')
    expect(text).toMatch(new RegExp(`^# ${name.slice(0, 4)} [A-Z]`))
    const sections = [...text.matchAll(/^\*\*(Context|Decision|Consequences)\.\*\*/gm)].map(([, section]) => section)
    expect(sections).toEqual(['Context', 'Decision', 'Consequences'])
  })

  it('the README of the library names every entry point', () => {
    const { exports } = JSON.parse(readFileSync('packages/sluice/package.json', 'utf8')) as { exports: object }
    const readme = readFileSync('packages/sluice/README.md', 'utf8')
    const entries = Object.keys(exports).map((key) => `\`${key.replace('.', 'sluice')}\``)
    expect(entries.filter((entry) => !readme.includes(entry))).toEqual([])
  })
})

describe('the ratchet', () => {
  const finding = { line: 7, fix: 'fix it' }

  it.each([
    { found: 0, allowed: 0, says: [] },
    { found: 1, allowed: 1, says: [] },
    { found: 1, allowed: 0, says: ['a.ts:7: fix it'] },
    { found: 2, allowed: 1, says: ['a.ts:7: fix it', 'a.ts:7: fix it'] },
    { found: 1, allowed: 2, says: ['a.ts: lower its exception from 2 to 1'] },
  ])('$found found, $allowed allowed', ({ found, allowed, says }) => {
    expect(judge('a.ts', Array(found).fill(finding), allowed)).toEqual(says)
  })

  it.each<[RuleName, string, string]>([
    ['a line is short', 'x'.repeat(121), 'é'.repeat(120)],
    ['a file begins with a comment', "import 'x'", '// Why.'],
    ['time comes from an injected clock', 'const t = Date.now()', '// Date.now() would be wrong here'],
    ['no setInterval', 'setInterval(f, 1)', 'clearInterval(t)'],
    ['random numbers are seeded', 'const r = Math.random()', 'const r = random()'],
    ['only commands use console.log', "console.log('hi')", 'log.info(1) // not console.log()'],
    ['no any', 'let a: any = 1', "const title = 'as any other'"],
    ['no any', 'f(a as any)', 'const any = true'],
    ['no any', 'const list: any[] = []', 'const any: unknown = 1'],
    ['no any', 'new Map<string, any>()', 'pick(a, any)'],
    ['no enums', 'export const enum Colour {', '/* an enum would do */'],
    ['no default exports', 'export default f', 'export const f = 1'],
    ['no TODO comments', '// TODO', '// to do'],
    ['the library does not import the server', "import { x } from '@sluice/server'", "import { x } from './server.ts'"],
    ['imports have a file extension', "import { x } from './x.js'", "import { x } from './x.ts'"],
    ['imports have a file extension', "await import('../x')", "import { x } from 'x'"],
    ['tests do not sleep', 'await new Promise((r) => setTimeout(r, 10))', 'setTimeout(() => server.close(), 10)'],
    ['tests do not sleep', 'await sleep(10)', 'clock.advance(10)'],
  ])('%s: rejects %j and accepts %j', (name, bad, good) => {
    const found = (line: string) => RULES[name].find({ path: 'x.ts', lines: [line], isTest: false, isLua: false })
    expect(found(bad)).toHaveLength(1)
    expect(found(good)).toHaveLength(0)
  })

  it.each([
    [ODD_OPENING, '  // What a store returns.', '// Returns what the store holds.'],
    [ODD_OPENING, '/** Of two limits, the stricter. */', '// Official.'],
    [ODD_OPENING, '-- Why units are short.', '-- Reason that units are short.'],
    [ODD_WORD, '// nobody reads it', '// no caller reads it'],
    [ODD_WORD, 'The client is told so.', 'The clerk is tolderant.'],
  ])('%s matches %j and not %j', (pattern, bad, good) => {
    expect(bad).toMatch(pattern)
    expect(good).not.toMatch(pattern)
  })
})

/** Problems of one file: too many findings, or fewer than its exception allows. */
function judge(path: string, findings: Finding[], allowed: number): string[] {
  if (findings.length > allowed) return findings.map(({ line, fix }) => `${path}:${line}: ${fix}`)
  if (findings.length < allowed) return [`${path}: lower its exception from ${allowed} to ${findings.length}`]
  return []
}

function eachLine(isBad: (line: string) => boolean, fix: string): (source: Source) => Finding[] {
  return ({ lines }) => lines.flatMap((line, index) => (isBad(line) ? [{ line: index + 1, fix }] : []))
}

/** Searches code only; comments may contain the pattern. */
function eachCode(pattern: RegExp, fix: string): (source: Source) => Finding[] {
  return (source) => {
    const comment = source.isLua ? /--.*$/ : /^\s*(\/\/|\/?\*).*$|\s\/\/ .*$/
    return eachLine((line) => pattern.test(line.replace(comment, '')), `instead: ${fix}`)(source)
  }
}

/** Tracked and untracked files that git does not ignore; none outside a git clone. */
function projectFiles(): string[] {
  try {
    const list = execFileSync('git', ['ls-files', '-coz', '--exclude-standard'], { encoding: 'utf8', stdio: 'pipe' })
    return list.split('\0').filter((path) => path !== '' && existsSync(path))
  } catch {
    return []
  }
}

/** Excludes this file, because it contains everything that it bans. */
function isSource(path: string): boolean {
  return /\.(tsx?|mjs|lua)$/.test(path) && !path.endsWith('.generated.ts') && path !== 'scripts/tidy.test.ts'
}

function readSource(path: string): Source {
  const isTest = path.endsWith('.test.ts') || /\/test\//.test(path)
  return { path, lines: readLines(path), isTest, isLua: path.endsWith('.lua') }
}

function readLines(path: string): string[] {
  return readFileSync(path, 'utf8').replace(/\n$/, '').split('\n')
}

function numberedLines({ path, lines }: Source): { place: string; text: string }[] {
  return lines.map((text, index) => ({ place: `${path}:${index + 1}`, text }))
}
