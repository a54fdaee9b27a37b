// Counts per client. Memory is bounded: beyond the cap, a client is only tracked once it is refused, and beyond a
// second cap not at all. Totals do not depend on it.

import type { Subject } from '../subject.ts'
import { type ClientKind, clientKind, clientName } from './recorded-request.ts'
import type { ClientResult } from './result.ts'

const CLIENTS_MAX = 200_000
/** Additional clients that are tracked because they were refused. */
const REFUSED_MAX = 50_000
/** Rules listed per client. */
const RULES_MAX = 8

export type ClientCounts = {
  readonly client: string
  readonly kind: ClientKind
  requests: number
  refused: number
  nowRefused: number
  newlyDenied: number
  newlyAllowed: number
  firstUs: number
  lastUs: number
  readonly rules: string[]
}

/** Numbers of clients with at least one such request. */
export type ClientTotals = {
  readonly seen: number
  readonly refused: number
  readonly nowRefused: number
  readonly newlyDenied: number
  readonly newlyAllowed: number
  /** Refused clients by rule. */
  readonly byRule: ReadonlyMap<string, number>
}

export class ClientTally {
  readonly #kinds: Readonly<Record<ClientKind, Map<string, ClientCounts>>> = {
    user: new Map(),
    api_key: new Map(),
    ip: new Map(),
    none: new Map(),
  }
  #size = 0
  untracked = 0

  /** Counts one request; `now` is the decision to compare with, if there is one. */
  add(subject: Subject, atUs: number, allowed: boolean, now: boolean | undefined, ruleId: string | null): void {
    const counts = this.#of(subject, !allowed || now === false)
    if (counts === undefined) {
      this.untracked += 1
      return
    }
    counts.requests += 1
    if (now === false) counts.nowRefused += 1
    if (allowed) {
      if (now === false) counts.newlyAllowed += 1
      return
    }
    counts.refused += 1
    if (now === true) counts.newlyDenied += 1
    if (counts.firstUs === 0) counts.firstUs = atUs
    counts.lastUs = atUs
    if (ruleId !== null && counts.rules.length < RULES_MAX && !counts.rules.includes(ruleId)) counts.rules.push(ruleId)
  }

  counts(): ClientTotals {
    const byRule = new Map<string, number>()
    const totals = { seen: this.#size, refused: 0, nowRefused: 0, newlyDenied: 0, newlyAllowed: 0, byRule }
    for (const map of Object.values(this.#kinds)) {
      for (const one of map.values()) {
        for (const name of ['refused', 'nowRefused', 'newlyDenied', 'newlyAllowed'] as const) {
          if (one[name] > 0) totals[name] += 1
        }
        for (const id of one.rules) byRule.set(id, (byRule.get(id) ?? 0) + 1)
      }
    }
    return totals
  }

  /** Most refused requests first, before or after the change; then by name. */
  top(count: number, hasNow: boolean): ClientResult[] {
    const refused: ClientCounts[] = []
    for (const map of Object.values(this.#kinds)) {
      for (const counts of map.values()) if (counts.refused + counts.nowRefused > 0) refused.push(counts)
    }
    return refused
      .sort(byRefusals)
      .slice(0, count)
      .map((counts) => ({
        client: counts.client,
        kind: counts.kind,
        requests: counts.requests,
        refused: counts.refused,
        now_refused: hasNow ? counts.nowRefused : null,
        first_refused_at: timeText(counts.firstUs),
        last_refused_at: timeText(counts.lastUs),
        rules: counts.rules,
      }))
  }

  #of(subject: Subject, isRefused: boolean): ClientCounts | undefined {
    const kind = clientKind(subject)
    const client = clientName(subject)
    const known = this.#kinds[kind].get(client)
    if (known !== undefined) return known
    if (this.#size >= CLIENTS_MAX && !(isRefused && this.#size < CLIENTS_MAX + REFUSED_MAX)) return undefined
    const counts: ClientCounts = {
      ...{ client, kind, requests: 0, refused: 0, nowRefused: 0, newlyDenied: 0, newlyAllowed: 0 },
      ...{ firstUs: 0, lastUs: 0, rules: [] },
    }
    this.#kinds[kind].set(client, counts)
    this.#size += 1
    return counts
  }
}

function byRefusals(a: ClientCounts, b: ClientCounts): number {
  const most = Math.max(b.refused, b.nowRefused) - Math.max(a.refused, a.nowRefused)
  return most || b.refused - a.refused || (a.client < b.client ? -1 : 1)
}

/** 0: never. */
export function timeText(us: number): string | null {
  return us === 0 ? null : new Date(Math.floor(us / 1000)).toISOString()
}
