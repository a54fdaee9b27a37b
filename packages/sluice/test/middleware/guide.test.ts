// docs/guides/middlewares.md lists exactly the options and warnings that exist.

import { readFileSync } from 'node:fs'
import { createLimiter } from 'sluice'
import { rateLimit as honoLimit } from 'sluice/hono'
import { expect, test } from 'vitest'

const read = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8')
const guide = read('../../../../docs/guides/middlewares.md')

/** Names in the first column of the table under a heading. */
function namesUnder(heading: string): string[] {
  const [, section = ''] = guide.split(`\n## ${heading}\n`)
  const rows = section.replace(/\n## [\s\S]*/, '').matchAll(/^\| (`[^|]*`) \|/gm)
  return [...rows].flatMap(([, cell = '']) => [...cell.matchAll(/`(\w+)`/g)].map(([, name = '']) => name)).sort()
}

/** The existing options, read from the error for an unknown one. */
function known(options: object): string[] {
  try {
    honoLimit({ ...options, unknown: 1 } as unknown as Parameters<typeof honoLimit>[0])
  } catch (error) {
    return /known options: ([\w, ]+)/.exec(String(error))?.[1]?.trim().split(', ') ?? []
  }
  return []
}

test('lists every option', () => {
  const forms = [{ limit: 1, window: '1s' }, { limiter: createLimiter({ rules: [] }) }]
  expect(namesUnder('Options')).toEqual([...new Set([...forms.flatMap(known), 'ip'])].sort())
})

test('lists every warning', () => {
  const codes = [...read('../../src/warning.ts').matchAll(/^ {2}(SLUICE_\w+):/gm)].map(([, code = '']) => code)
  expect(namesUnder('Warnings')).toEqual(codes.sort())
})
