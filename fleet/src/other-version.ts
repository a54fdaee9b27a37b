// Creates a copy of the compiled service that differs only in the SHA of its Redis scripts. Nodes of both versions use
// the same buckets, as in a rolling upgrade.

import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const OURS = ['sluice', '@sluice']
const NOT_NEEDED = /packages\/\w+\/(node_modules|src|test)$/

/** Returns the path of its `main.js` in a temporary folder. */
export async function otherVersion(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-version-'))
  const packages = join(ROOT, 'node_modules')
  mkdirSync(join(folder, 'node_modules'))
  for (const name of readdirSync(packages).filter((one) => !OURS.includes(one) && !one.startsWith('.'))) {
    symlinkSync(join(packages, name), join(folder, 'node_modules', name))
  }
  for (const [from, to] of [
    ['packages/sluice', 'node_modules/sluice'],
    ['packages/server', 'server'],
  ] as const) {
    cpSync(join(ROOT, from), join(folder, to), { recursive: true, filter: (path) => !NOT_NEEDED.test(path) })
  }
  await changeScriptHashes(join(folder, 'node_modules/sluice/dist/redis/scripts.generated.js'))
  return join(folder, 'server/dist/main.js')
}

/** Appends a comment to each script, which changes its SHA. */
async function changeScriptHashes(path: string): Promise<void> {
  const scripts = (await import(pathToFileURL(path).href)) as Readonly<Record<string, { readonly text: string }>>
  const changed = Object.entries(scripts).map(([name, script]) => {
    const text = `${script.text}-- another version\n`
    const sha1 = createHash('sha1').update(text).digest('hex')
    return `export const ${name} = ${JSON.stringify({ sha1, text })}\n`
  })
  writeFileSync(path, changed.join(''))
}
