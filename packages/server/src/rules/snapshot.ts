// Snapshot of the last good rules on disk, so that a node can start while its rule source is down. Writes a temporary
// file and renames it, so readers never see a partial one. Each source has its own file, so nodes may share a folder.

import { createHash } from 'node:crypto'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { inSlices, mapped, type Rule, wallClock } from 'sluice'
import { compactRule } from './compact-rule.ts'

export type Snapshot = { readonly version: number; readonly rules: unknown; readonly ageMs: number }

export class RuleSnapshot {
  readonly path: string
  readonly #folder: string

  constructor(folder: string, location: string) {
    const fingerprint = createHash('sha256').update(location).digest('hex').slice(0, 12)
    this.#folder = folder
    this.path = join(folder, `rules-${fingerprint}.json`)
  }

  /** Undefined if there is no readable snapshot. */
  async read(): Promise<Snapshot | undefined> {
    try {
      const text = await readFile(this.path, 'utf8')
      const { version, rules, kept_at: keptAt } = JSON.parse(text) as Snapshot & { kept_at: number }
      return Number.isSafeInteger(version) ? { version, rules, ageMs: Math.max(0, nowMs() - keptAt) } : undefined
    } catch {
      return undefined
    }
  }

  async write(version: number, rules: readonly Rule[]): Promise<void> {
    const texts = await inSlices(mapped(rules, snapshotText))
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const temporary = `${this.path}.${hostname()}.${process.pid}` // the pid alone is always 1 in containers
    try {
      const content = `{"version":${version},"kept_at":${nowMs()},"rules":[\n${texts.join(',\n')}\n]}\n`
      await writeFile(temporary, content, { mode: 0o600 })
      await rename(temporary, this.path)
    } finally {
      await rm(temporary, { force: true })
    }
  }
}

/** As written, with the metadata of the store: defaults do not become explicit while the source is down. */
function snapshotText(rule: Rule): string {
  const { version, created_at, updated_at } = rule
  return JSON.stringify({ ...compactRule(rule), version, created_at, updated_at })
}

function nowMs(): number {
  return wallClock.nowUs() / 1000
}
