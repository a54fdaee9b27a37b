import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const SOURCES = new URL('../', import.meta.url)

/** The file and everything it imports, except types. */
function reachedFrom(file: URL, reached: Set<string> = new Set()): Set<string> {
  if (reached.has(file.href)) return reached
  reached.add(file.href)
  for (const [, path = ''] of readFileSync(file, 'utf8').matchAll(
    /^(?:import|export) (?!type)[^']*? from '([^']+)'/gm,
  )) {
    reachedFrom(new URL(path, file), reached)
  }
  return reached
}

test('imports neither the engine nor Node.js modules', () => {
  const reached = [...reachedFrom(new URL('client/index.ts', SOURCES))].map((href) => href.slice(SOURCES.href.length))
  expect(reached.filter((path) => !path.startsWith('client/')).sort()).toEqual([
    'clock.ts',
    'errors.ts',
    'known-fields.ts',
    'nearest.ts',
  ])
  const code = reached.map((path) => readFileSync(new URL(path, SOURCES), 'utf8')).join('\n')
  expect(code).not.toMatch(/\b(process|Buffer|require)\b[.(]|'node:/)
})
