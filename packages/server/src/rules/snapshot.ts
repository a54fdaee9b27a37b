// The last good rules on disk, so that a node can start while the source of its rules is down. Written beside and
// renamed: whoever reads it finds a whole one. Each source has a file of its own, so that nodes may share a folder.

import { createHash } from 'node:crypto'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { inSlices, mapped, type Rule, wallClock } from 'sluice'

export type Snapshot = { readonly version: number; readonly rules: unknown; readonly ageMs: number }

export class RuleSnapshot {
  readonly path: string
  readonly #folder: string

  constructor(folder: string, place: string) {
    const print = createHash('sha256').update(place).digest('hex').slice(0, 12)
    this.#folder = folder
    this.path = join(folder, `rules-${print}.json`)
  }

  /** Undefined when there is none, or none that can be read. */
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
    const texts = await inSlices(mapped(rules, (rule) => JSON.stringify(rule)))
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const beside = `${this.path}.${hostname()}.${process.pid}` // in containers every process is number 1
    try {
      const content = `{"version":${version},"kept_at":${nowMs()},"rules":[\n${texts.join(',\n')}\n]}\n`
      await writeFile(beside, content, { mode: 0o600 })
      await rename(beside, this.path)
    } finally {
      await rm(beside, { force: true })
    }
  }
}

function nowMs(): number {
  return wallClock.nowUs() / 1000
}
