// Rules from etcd. Every set that is read is complete as of one revision, and the newest one is always noticed: a watch
// only says when to look, and whatever ends a watch (a restart, a compaction, a broken connection, half a minute) is
// followed by a look at all keys before the next watch begins behind them.

import { randomInt } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { type Fault, LimiterError } from 'sluice'
import { faultLine } from '../rule-file.ts'
import type { FoundRules, RuleSource, RuleWatch } from '../rule-source.ts'
import type { EtcdAddress } from './etcd-address.ts'
import { EtcdClient, type EtcdRange } from './etcd-client.ts'
import { type Documents, joinDocuments } from './etcd-documents.ts'

/** A connection that died without a word is noticed after this long. */
const WATCH_MS_MAX = 30_000
/** Between two watches; each failure in a row doubles it. Jittered, so that nodes do not come back at once. */
const RETRY_MS = { first: 100, longest: 5000 }

type PlacedFault = Fault & { readonly place?: string }

export class EtcdSource implements RuleSource {
  readonly kind = 'etcd'
  readonly place: string
  readonly #prefix: string
  readonly #client: EtcdClient
  /** What was read last. */
  #read: { readonly revision: number; readonly print: string } | undefined
  /** The revision of the newest change that the watch told of. */
  #told: number | undefined

  constructor(address: EtcdAddress) {
    this.place = `the keys below ${address.prefix} in etcd at ${address.endpoints.join(', ')}`
    this.#prefix = address.prefix
    this.#client = new EtcdClient(address)
  }

  async read(known: number | undefined): Promise<FoundRules | undefined> {
    const { revision: last = 0, print } = this.#read ?? {}
    const told = this.#told ?? 0
    const isNew = told > last || known !== last || printOf(await this.#client.read({ keysOnly: true })) !== print
    if (!isNew) return undefined
    const range = await this.#client.read()
    // The revision of the change, which all nodes are told alike; where nobody was told, that of the present.
    const revision = told > last ? Math.max(told, ...range.keys.map(({ modRevision }) => modRevision)) : range.revision
    this.#read = { revision, print: printOf(range) }
    const documents = await joinDocuments(range.keys)
    const errorOf = (faults: readonly PlacedFault[]) => this.#errorOf(faults, documents)
    if (documents.faults.length > 0) throw await errorOf(documents.faults)
    if (range.keys.length === 0) throw await errorOf([this.#nothing()])
    return { rules: documents.value, version: revision, errorOf }
  }

  async watch(changed: () => void): Promise<RuleWatch> {
    const stopping = new AbortController()
    const ended = this.#keepWatching(changed, stopping.signal)
    return {
      stop: () => {
        stopping.abort()
        return ended
      },
    }
  }

  async close(): Promise<void> {}

  /** When etcd is lost and when it is back, `changed` is called too: whoever reads then learns of it. */
  async #keepWatching(changed: () => void, stopping: AbortSignal): Promise<void> {
    let failures = 0
    while (!stopping.aborted) {
      try {
        const latest = await this.#client.read({ keysOnly: true })
        if (failures > 0 || printOf(latest) !== this.#read?.print) changed()
        failures = 0
        await this.#watchFrom(latest.revision + 1, changed, stopping)
      } catch {
        failures += 1
        if (failures === 1 && !stopping.aborted) changed()
      }
      const ms = Math.min(RETRY_MS.first * 2 ** failures, RETRY_MS.longest)
      await pause(randomInt(ms / 2, ms), undefined, { signal: stopping }).catch(() => {})
    }
  }

  async #watchFrom(revision: number, changed: () => void, stopping: AbortSignal): Promise<void> {
    const signal = AbortSignal.any([stopping, AbortSignal.timeout(WATCH_MS_MAX)])
    try {
      for await (const told of this.#client.watch(revision, signal)) {
        this.#told = told
        changed()
      }
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  /** All keys deleted is more likely a mistake than the wish for no limits at all. */
  #nothing(): Fault {
    const fix = `put rules into keys below ${this.#prefix}, or [] for none at all`
    return { field: 'rules', value: undefined, fix }
  }

  async #errorOf(faults: readonly PlacedFault[], { placesOf }: Documents): Promise<LimiterError> {
    const places = await placesOf(faults.map(({ field }) => field))
    const lines = faults.map((fault, index) => faultLine(`etcd ${fault.place ?? places[index] ?? this.#prefix}`, fault))
    return new LimiterError('RULE_INVALID', lines.join('\n'), { faults })
  }
}

/** A text that differs whenever the keys do. */
function printOf({ keys }: EtcdRange): string {
  return keys.map(({ key, modRevision }) => `${modRevision} ${key}`).join('\n')
}
