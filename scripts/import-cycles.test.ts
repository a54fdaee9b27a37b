// The import-cycle check of tidy.test.ts finds cycles and names their files.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, expect, it } from 'vitest'
import { describeCycles, describeDisorder, documentedLayers, importGraph } from './import-cycles.ts'

const folders: string[] = []

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true })
})

it('accepts folders without import cycles', () => {
  const graph = graphOf({
    'main.ts': "import { serve } from './http/serve.ts'",
    'http/serve.ts': "import { open } from '../store/open.ts'\nimport { route } from './route.ts'",
    'http/route.ts': "import type { serve } from './serve.ts'",
    'store/open.ts': "import { x } from 'elsewhere'\nimport manifest from '../../package.json' with { type: 'json' }",
    'store/open.test.ts': "import { serve } from '../http/serve.ts'",
  })
  expect(describeCycles(graph)).toEqual([])
})

it.each([
  ['an import', "import { serve } from '../http/serve.ts'"],
  ['a type import', "import type { Serve } from '../http/serve.ts'"],
  ['an import over several lines', "import {\n  type Serve,\n} from '../http/serve.ts'"],
  ['an export', "export * from '../http/serve.ts'"],
  ['an import for its side effects', "import '../http/serve.ts'"],
  ['a dynamic import', "const { serve } = await import('../http/serve.ts')"],
])('finds a cycle through %s, and names the files of each edge', (_, code) => {
  const graph = graphOf({ 'http/serve.ts': "import { open } from '../store/open.ts'", 'store/open.ts': code })
  expect(describeCycles(graph)).toEqual([
    [
      'import cycle: http → store → http',
      '  http imports store:',
      '    http/serve.ts → store/open.ts',
      '  store imports http:',
      '    store/open.ts → http/serve.ts',
    ].join('\n'),
  ])
})

it('finds a cycle through a file at the root, and one cycle per component', () => {
  const graph = graphOf({
    'log.ts': "import { level } from './settings/level.ts'",
    'settings/level.ts': "import { fail } from '../errors/fail.ts'",
    'errors/fail.ts': "import { log } from '../log.ts'",
    'a/a.ts': "import { b } from '../b/b.ts'",
    'b/b.ts': "import { a } from '../a/a.ts'",
  })
  const cycles = describeCycles(graph).map((text) => text.split('\n')[0])
  expect(cycles).toEqual(['import cycle: a → b → a', 'import cycle: errors → log.ts → settings → errors'])
})

it('finds a cycle between files of one folder, if each file is an entry', () => {
  const graph = graphOf(
    {
      'pages/shell.tsx': "import { Help } from './help.tsx'",
      'pages/help.tsx': "import { isVisible } from './shell.tsx'",
    },
    (path) => path,
  )
  const cycles = describeCycles(graph).map((text) => text.split('\n')[0])
  expect(cycles).toEqual(['import cycle: pages/help.tsx → pages/shell.tsx → pages/help.tsx'])
})

it('reads layers from a page, and reports imports of a higher layer and unlisted entries', () => {
  const page = 'src/   order\n  errors clock   root files\n  store/  buckets\n  http/   routes\n```\n'
  const layers = documentedLayers(page, 'src')
  expect(layers).toEqual([['errors', 'clock'], ['store'], ['http']])
  const graph = graphOf({
    'clock.ts': "import { fail } from './errors.ts'",
    'errors.ts': '',
    'store/open.ts': "import type { Route } from '../http/route.ts'",
    'http/route.ts': "import { fail } from '../errors.ts'",
    'text/table.ts': '',
  })
  expect(describeDisorder(graph, layers)).toEqual(['text: not listed', 'store/open.ts → http/route.ts'])
})

function graphOf(files: Record<string, string>, entryOf?: (path: string) => string): ReturnType<typeof importGraph> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-imports-'))
  folders.push(folder)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
  return importGraph(folder, entryOf)
}
