// Another version of the compiled service, beside the real one: the same but for its script in Redis, which has another
// name there. Nodes of both work on the same buckets, as in a rolling upgrade.

import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const OURS = ['sluice', '@sluice']
const SCRIPT = /sha1: '(\w{40})',\s+text: `([^`]*)`/

/** The path of its `main.js`, in a temporary folder. */
export function otherVersion(): string {
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
    for (const part of ['package.json', 'dist']) {
      cpSync(join(ROOT, from, part), join(folder, to, part), { recursive: true })
    }
  }
  renameScript(join(folder, 'node_modules/sluice/dist/redis/scripts.generated.js'))
  return join(folder, 'server/dist/main.js')
}

/** A comment more makes it another script to Redis. */
function renameScript(path: string): void {
  const source = readFileSync(path, 'utf8')
  const [, sha1 = '', written = ''] = SCRIPT.exec(source) ?? []
  const text = `${written}-- another version\n`
  const meant = text.replaceAll('\\\\', '\\')
  if (sha1 === '') throw new Error(`${path} holds no script`)
  const other = createHash('sha1').update(meant).digest('hex')
  writeFileSync(
    path,
    source.replace(sha1, other).replace(written, () => text),
  )
}
