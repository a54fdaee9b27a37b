// Rules from etcd. Every set is consistent at one revision, and no change is missed: a watch only triggers a read, and
// after the end of a watch (restart, compaction, lost connection, 30 s) all keys are read before the next watch begins.

import { randomInt } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { type FieldError, LimiterError } from 'sluice'
import type { EtcdAddress } from '../../settings/etcd-address.ts'
import { errorLine } from '../rule-file.ts'
import type { FoundRules, RuleSource, RuleWatch } from '../rule-source.ts'
import { EtcdClient, type EtcdRange } from './etcd-client.ts'
import { type Documents, joinDocuments } from './etcd-documents.ts'

/** Limit on the duration of a watch, which detects silently broken connections. */
const WATCH_MS_MAX = 30_000
/** Pause between two watches, doubled after each consecutive failure, with jitter so that nodes spread out. */
const RETRY_MS = { first: 100, longest: 5000 }

type LocatedError = FieldError & { readonly location?: string }

export class EtcdSource implements RuleSource {
  readonly kind = 'etcd'
  readonly location: string
  readonly #prefix: string
  readonly #client: EtcdClient
  #lastRead: { readonly revision: number; readonly fingerprint: string } | undefined
  /** Revision of the newest change that the watch reported. */
  #watched: number | undefined

  constructor(address: EtcdAddress) {
    this.location = `the keys below ${address.prefix} in etcd at ${address.endpoints.join(', ')}`
    this.#prefix = address.prefix
    this.#client = new EtcdClient(address)
  }

  async read(known: number | undefined): Promise<FoundRules | undefined> {
    const { revision: last = 0, fingerprint } = this.#lastRead ?? {}
    const watched = this.#watched ?? 0
    const mayHaveChanged = watched > last || known !== last
    if (!mayHaveChanged && fingerprintOf(await this.#client.read({ keysOnly: true })) === fingerprint) return undefined
    const range = await this.#client.read()
    // The revision of the watched change, which is the same on all nodes; without a watch, the current revision.
    const revision =
      watched > last ? Math.max(watched, ...range.keys.map(({ modRevision }) => modRevision)) : range.revision
    this.#lastRead = { revision, fingerprint: fingerprintOf(range) }
    const documents = await joinDocuments(range.keys)
    const errorOf = (errors: readonly LocatedError[]) => this.#errorOf(errors, documents)
    if (documents.errors.length > 0) throw await errorOf(documents.errors)
    if (range.keys.length === 0) throw await errorOf([this.#noKeysError()])
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

  /** Also calls `changed` when etcd becomes unreachable or reachable, so that the next read notices. */
  async #keepWatching(changed: () => void, stopping: AbortSignal): Promise<void> {
    let failures = 0
    while (!stopping.aborted) {
      try {
        const latest = await this.#client.read({ keysOnly: true })
        if (failures > 0 || fingerprintOf(latest) !== this.#lastRead?.fingerprint) changed()
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
      for await (const changedRevision of this.#client.watch(revision, signal)) {
        this.#watched = changedRevision
        changed()
      }
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  /** An empty prefix is more likely a mistake than an intended empty rule set. */
  #noKeysError(): FieldError {
    const fix = `put rules into keys below ${this.#prefix}, or [] for no rules`
    return { field: 'rules', value: undefined, fix }
  }

  async #errorOf(errors: readonly LocatedError[], { locationsOf }: Documents): Promise<LimiterError> {
    const locations = await locationsOf(errors.map(({ field }) => field))
    const lines = errors.map((error, index) => {
      return errorLine(`etcd ${error.location ?? locations[index] ?? this.#prefix}`, error)
    })
    return new LimiterError('RULE_INVALID', lines.join('\n'), { fieldErrors: errors })
  }
}

/** Differs whenever the keys differ. */
function fingerprintOf({ keys }: EtcdRange): string {
  return keys.map(({ key, modRevision }) => `${modRevision} ${key}`).join('\n')
}
