// Rules from etcd. Every set that is read is complete as of one revision, and the newest one is always noticed: a watch
// only says when to look, and whatever ends a watch (a restart, a compaction, a broken connection, half a minute) is
// followed by a look at all keys before the next watch begins behind them.

import { randomInt } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { type Fault, LimiterError } from 'sluice'
import type { Log } from '../../log.ts'
import { shown } from '../../shown.ts'
import type { FoundRules, RuleSource, RuleWatch } from '../rule-source.ts'
import type { EtcdAddress } from './etcd-address.ts'
import { EtcdClient, type EtcdRange } from './etcd-client.ts'
import { type Documents, joinDocuments } from './etcd-documents.ts'

/** A connection that died without a word is noticed after this long. */
const WATCH_MS_MAX = 30_000
/** Between two watches; each failure in a row doubles it. Jittered, so that nodes do not come back at once. */
const RETRY_MS = { first: 100, longest: 5000 }

export class EtcdSource implements RuleSource {
  readonly kind = 'etcd'
  readonly place: string
  readonly #prefix: string
  readonly #client: EtcdClient
  readonly #log: Log
  /** What was read last. */
  #read: { readonly revision: number; readonly print: string } | undefined
  /** The revision of a change that was told by the watch and is not read yet. */
  #told: number | undefined
  #inTrouble = false

  constructor(address: EtcdAddress, log: Log) {
    this.place = `the keys below ${address.prefix} in etcd at ${address.endpoints.join(', ')}`
    this.#prefix = address.prefix
    this.#client = new EtcdClient(address)
    this.#log = log
  }

  async read(known: number | undefined): Promise<FoundRules | undefined> {
    const told = this.#told
    this.#told = undefined // a revision that cannot be read any more must not be asked for twice
    const revision = told ?? (await this.#latestUnless(known))
    if (revision === undefined) return undefined
    const range = await this.#client.read({ revision })
    this.#read = { revision, print: printOf(range) }
    const documents = joinDocuments(range.keys)
    const errorOf = (faults: readonly (Fault & { place?: string })[]) => this.#errorOf(faults, documents)
    if (documents.faults.length > 0) throw errorOf(documents.faults)
    if (range.keys.length === 0) throw errorOf([this.#nothing()])
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

  /** The present revision, or undefined when the keys are still those of `known`. */
  async #latestUnless(known: number | undefined): Promise<number | undefined> {
    const latest = await this.#client.read({ keysOnly: true })
    const isKnown = known !== undefined && known === this.#read?.revision && printOf(latest) === this.#read.print
    return isKnown ? undefined : latest.revision
  }

  async #keepWatching(changed: () => void, stopping: AbortSignal): Promise<void> {
    let failures = 0
    while (!stopping.aborted) {
      try {
        await this.#watchOnce(changed, stopping)
        failures = 0
      } catch (error) {
        failures += 1
        if (!stopping.aborted) this.#trouble(error)
      }
      const ms = Math.min(RETRY_MS.first * 2 ** failures, RETRY_MS.longest)
      await pause(randomInt(ms / 2, ms), undefined, { signal: stopping }).catch(() => {})
    }
  }

  async #watchOnce(changed: () => void, stopping: AbortSignal): Promise<void> {
    const latest = await this.#client.read({ keysOnly: true })
    if (this.#inTrouble) this.#log.info('etcd answers again')
    this.#inTrouble = false
    if (printOf(latest) !== this.#read?.print) changed()
    const signal = AbortSignal.any([stopping, AbortSignal.timeout(WATCH_MS_MAX)])
    try {
      for await (const revision of this.#client.watch(latest.revision + 1, signal)) {
        this.#told = revision
        changed()
      }
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  /** Once for all failures in a row. */
  #trouble(error: unknown): void {
    if (this.#inTrouble) return
    this.#inTrouble = true
    const reason = error instanceof Error ? error.message : String(error)
    this.#log.error({ reason }, 'etcd does not answer: the rules stay as they are')
  }

  /** All keys deleted is more likely a mistake than the wish for no limits at all. */
  #nothing(): Fault {
    return { field: 'rules', value: undefined, fix: `put rules into keys below ${this.#prefix}, or [] for none at all` }
  }

  #errorOf(faults: readonly (Fault & { place?: string })[], { placeOf }: Documents): LimiterError {
    const lines = faults.map(({ field, value, fix, place = placeOf(field) }) => {
      return `etcd ${place ?? this.#prefix}: ${field}: ${fix} (got ${JSON.stringify(shown(value)) ?? 'nothing'})`
    })
    return new LimiterError('RULE_INVALID', lines.join('\n'), { faults })
  }
}

/** A text that differs whenever the keys do. */
function printOf({ keys }: EtcdRange): string {
  return keys.map(({ key, modRevision }) => `${modRevision} ${key}`).join('\n')
}
