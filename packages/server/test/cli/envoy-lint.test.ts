import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { temporaryFolder } from '../databases.ts'
import { sluice } from './terminal.ts'

const GOOD = 'domain: a\ndescriptors:\n  - { key: k, rate_limit: { unit: day, requests_per_unit: 1 } }\n  - key: idle\n'
const BAD = 'domain: b\ndescriptors:\n  - key: k\n    rate_limt: { unit: day }\n'

test('lists errors and warnings with file and line, and fails only for errors', async () => {
  const folder = temporaryFolder()
  const [good, bad] = [join(folder, 'good.yaml'), join(folder, 'bad.yaml')]
  writeFileSync(good, GOOD)
  writeFileSync(bad, BAD)
  const fine = await sluice(['envoy', 'lint', good])
  expect(fine.code).toBe(0)
  expect(fine.out).toBe(
    `${good}:4: warning: descriptors[1]: no effect: give it a rate_limit or nested descriptors (got "idle")\n`,
  )
  expect(fine.told).toBe(`${good}: 1 domain, 0 errors, 1 warning\n`)
  const both = await sluice(['envoy', 'lint', folder])
  expect(both.code).toBe(2)
  expect(both.out).toContain(`${bad}:4: error: descriptors[0].rate_limt: unknown key; did you mean "rate_limit"?`)
  const json = await sluice(['envoy', 'lint', folder, '--json'])
  expect(JSON.parse(json.out)).toMatchObject([{ path: folder, domains: ['a'], findings: [{ file: bad, line: 4 }, {}] }])
  const none = join(folder, 'none.yaml')
  const absent = await sluice(['envoy', 'lint', none])
  expect(absent).toMatchObject({ code: 2, out: expect.stringMatching(/: error: file: give a readable file: ENOENT/) })
  expect(absent.out.startsWith(`${none}: error: `)).toBe(true)
})

test('reads every file of a folder and its sub folders, and names what it does not read', async () => {
  const folder = temporaryFolder()
  const empty = await sluice(['envoy', 'lint', folder])
  expect(empty).toMatchObject({ code: 0, told: `${folder}: 0 domains, 0 errors, 1 warning\n` })
  expect(empty.out).toBe(`${folder}: warning: file: put a file into this folder: no domain has limits\n`)
  const config = (domain: string) => `domain: ${domain}\ndescriptors: [{ key: k, rate_limit: { unlimited: true } }]\n`
  mkdirSync(join(folder, 'team'))
  mkdirSync(join(folder, '..2026'))
  writeFileSync(join(folder, 'a.yaml'), config('a'))
  writeFileSync(join(folder, 'b.conf'), config('b'))
  writeFileSync(join(folder, 'team', 'c'), config('c'))
  writeFileSync(join(folder, '..2026', 'd.yaml'), config('d'))
  symlinkSync(join(folder, '..2026', 'd.yaml'), join(folder, 'd.yaml'))
  symlinkSync('..2026', join(folder, '..data'))
  symlinkSync('team', join(folder, 'other'))
  writeFileSync(join(folder, '.a.yaml.swp'), 'x')
  const read = await sluice(['envoy', 'lint', folder, '--json'])
  expect(read.code).toBe(0)
  expect(JSON.parse(read.out)).toMatchObject([
    {
      domains: ['a', 'b', 'd', 'c'],
      findings: [
        { severity: 'warning', file: join(folder, '.a.yaml.swp'), fix: 'not read: its name begins with a dot' },
        { severity: 'warning', file: join(folder, 'other'), fix: 'not read: links to folders are not followed' },
      ],
    },
  ])
})
