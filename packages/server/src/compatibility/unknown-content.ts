// Records what this node has read but does not understand, because a newer version wrote it: exceptions, tokens,
// migrations. The node leaves it out, says so once in the log, and is degraded for as long as it reads it.

import type { Log } from '../log.ts'

const NAMED_MAX = 3

export type UnknownCounts = Readonly<Record<string, number>>

export class UnknownContent {
  readonly #log: Log
  readonly #found = new Map<string, readonly string[]>()

  constructor(log: Log) {
    this.#log = log
  }

  /** Replaces what was found at the last read of `where`. `consequence`: what the node does instead. */
  found(where: string, items: readonly string[], consequence: string): void {
    const before = this.#found.get(where)?.join('\n') ?? ''
    this.#found.set(where, items)
    if (items.join('\n') === before) return
    if (items.length === 0) this.#log.event('content_understood', { where })
    else this.#log.event('content_not_understood', { where, items: named(items), consequence })
  }

  /** Reason for /readyz. */
  degradedReason(): string | undefined {
    const texts = [...this.#found].filter(([, items]) => items.length > 0)
    if (texts.length === 0) return undefined
    const all = texts.map(([where, items]) => `${where} (${named(items)})`)
    return `written by a newer version and ignored: ${all.join('; ')}; upgrade this node`
  }

  /** Number of items, by place. */
  counts(): UnknownCounts {
    return Object.fromEntries([...this.#found].map(([where, items]) => [where, items.length]))
  }
}

function named(items: readonly string[]): string {
  const more = items.length > NAMED_MAX ? ` and ${items.length - NAMED_MAX} more` : ''
  return `${items.slice(0, NAMED_MAX).join(', ')}${more}`
}
