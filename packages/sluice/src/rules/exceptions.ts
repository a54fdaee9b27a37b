// Overrides, signals and the global factor in force, looked up per rule and key. Order: ban, exemption, changed limit.
// Overrides of the rule come before those of all rules, except that any ban refuses. Signals and the global factor
// multiply the resulting limit, which stays at least 1. Only an override that names a limit changes a limit of 0.

import { canonicalAddress } from '../canonical/address.ts'
import type { Clock } from '../clock.ts'
import { optionInvalid } from '../errors.ts'
import type { Subject } from '../subject.ts'
import { withUnits } from './changed-limit.ts'
import type { CompiledLimit, CompiledRule } from './compile.ts'
import { readerOf } from './condition.ts'
import {
  type AppliedException,
  type AppliedExceptions,
  canonicalOwner,
  checkGlobalFactor,
  checkOverrides,
  checkSignals,
  type GlobalFactor,
  NOTHING_APPLIED,
  OVERRIDES_MAX,
  type Override,
  type OverrideChanges,
  type OverrideEffect,
  SEVERITIES,
  type Severity,
  type Signal,
} from './exception.ts'
import { KeyTable } from './key-table.ts'

/** Exceptions of one rule for one key. */
export type RuleException = {
  /** Whether the rule refuses every request of the key. */
  readonly bans: boolean
  readonly exempts: boolean
  /** The limit for the key. `isOnly`: the rule has no other limit for this request. */
  changed(compiled: CompiledLimit, isOnly: boolean): CompiledLimit
}

/** Products such as 100 × 0.29 = 28.999… count as whole. */
const ROUNDING = 1e-6

/** All exceptions of one key. */
type KeyExceptions = { readonly overrides: readonly Override[]; readonly signals: readonly Signal[] }

const NO_EXCEPTIONS: KeyExceptions = { overrides: [], signals: [] }

export class Exceptions {
  readonly #clock: Clock
  readonly #ipv6Prefix: number
  readonly #byId = new Map<string, Override>()
  readonly #byKey = new KeyTable<KeyExceptions>()
  /** Number of bans from all rules, by fact. */
  readonly #bans = new Map<string, number>()
  #signals: readonly Signal[] = []
  #factor: GlobalFactor | undefined
  #any = false
  #changes = 0
  #applied: AppliedExceptions = NOTHING_APPLIED

  constructor(clock: Clock, ipv6Prefix: number) {
    this.#clock = clock
    this.#ipv6Prefix = ipv6Prefix
  }

  /** Itself, or undefined without any exception: a check then pays for one comparison. */
  get active(): Exceptions | undefined {
    return this.#any ? this : undefined
  }

  /** Number of changes so far. */
  get changes(): number {
    return this.#changes
  }

  /** Keys with overrides or signals, also expired ones, in canonical form. */
  get keys(): readonly (readonly [fact: string, owner: string])[] {
    return this.#byKey.keys()
  }

  get hasGlobalFactor(): boolean {
    return this.#liveFactor() !== 1
  }

  /** Atomic: throws OPTION_INVALID and changes nothing if one override is invalid. */
  changeOverrides({ set = [], remove = [], replaceAll = false }: OverrideChanges): void {
    checkOverrides(set)
    const removed = new Set(replaceAll ? this.#byId.keys() : remove)
    const count = this.#countAfter(set, removed)
    if (count > OVERRIDES_MAX) {
      throw optionInvalid('set', count, `keep at most ${OVERRIDES_MAX} overrides: remove some first`)
    }
    for (const id of removed) this.#remove(id)
    for (const override of set) this.#set(override)
    this.#countAll()
  }

  /** Replaces all signals. */
  setSignals(signals: readonly Signal[]): void {
    checkSignals(signals)
    for (const signal of this.#signals) this.#change(signal, (key) => ({ ...key, signals: [] }))
    this.#signals = signals.map((signal) => this.#canonical(signal))
    for (const signal of this.#signals) {
      this.#change(signal, (key) => ({ ...key, signals: [...key.signals, signal] }))
    }
    this.#countAll()
  }

  setGlobalFactor(factor: GlobalFactor | undefined): void {
    checkGlobalFactor(factor)
    this.#factor = factor
    this.#countAll()
  }

  /** Exceptions applied to a request since `begin`. Requests are charged synchronously, one after the other. */
  get applied(): AppliedExceptions {
    return this.#applied
  }

  begin(): this {
    this.#applied = NOTHING_APPLIED
    return this
  }

  /** Whether a key of the request is banned from all rules. */
  bans(subject: Subject): boolean {
    if (this.#bans.size === 0) return false
    for (const fact of this.#bans.keys()) {
      const owner = this.#ownerOf(fact, subject)
      const key = owner === undefined ? undefined : this.#byKey.find(fact, owner)
      const ban = key && this.#live(key.overrides).find((override) => override.ruleId === null && isBan(override))
      if (ban === undefined) continue
      this.#apply('override', ban.id, null, ban.effect)
      this.#applied = { ...this.#applied, banned: true, status: statusOf(ban) }
      return true
    }
    return false
  }

  /** Undefined if none applies. `fact` is the fact of `owner`: `ip` with `on_missing: by_ip`. */
  find(rule: CompiledRule, fact: string, owner: string): RuleException | undefined {
    const key = this.#byKey.find(fact, owner)
    return key === undefined && this.#factor === undefined ? undefined : this.#resolve(rule, key ?? NO_EXCEPTIONS)
  }

  /** The limit for an owner, outside of a request. */
  limitFor(compiled: CompiledLimit, owner: string): CompiledLimit {
    const { rule, limit } = compiled
    const lists = [rule.limits, ...rule.limitsByPlan.values()]
    const own = lists.find((list) => list.some((one) => one === compiled || one.byIp === compiled))
    return this.find(rule, limit.fact, owner)?.changed(compiled, own?.length === 1) ?? compiled
  }

  #resolve(rule: CompiledRule, { overrides, signals }: KeyExceptions): RuleException | undefined {
    const live = this.#live(overrides)
    const own = live.filter(({ ruleId }) => ruleId === rule.id)
    const general = live.filter(({ ruleId }) => ruleId === null)
    const preferred = own.length > 0 ? own : general
    const ban = [...own, ...general].find(isBan)
    const settled = ban ?? preferred.find(isExemption)
    if (settled !== undefined) {
      this.#apply('override', settled.id, rule.id, settled.effect)
      const status = rule.shadow ? undefined : statusOf(settled)
      if (status !== undefined) this.#applied = { ...this.#applied, status }
      return { bans: settled === ban, exempts: settled !== ban, changed: (compiled) => compiled }
    }
    const signal = rule.rule.on_signal === undefined ? undefined : strongest(rule, this.#live(signals))
    const factor = this.#liveFactor()
    if (preferred.length === 0 && signal === undefined && factor === 1) return undefined
    const changed = (compiled: CompiledLimit, isOnly: boolean) =>
      this.#changed(compiled, strictest(compiled, preferred, isOnly), signal, factor)
    return { bans: false, exempts: false, changed }
  }

  #changed(
    compiled: CompiledLimit,
    override: Override | undefined,
    signal: Reaction | undefined,
    factor: number,
  ): CompiledLimit {
    const { rule, limit } = compiled
    const base = override === undefined ? limit.units : unitsUnder(override, limit.units)
    if (base === 0) return compiled
    if (override !== undefined) this.#apply('override', override.id, rule.id, override.effect)
    if (signal !== undefined) this.#apply('signal', signal.kind, rule.id, { factor: signal.factor })
    if (factor !== 1) this.#apply('factor', 'global', null, { factor })
    return withUnits(compiled, Math.max(1, Math.floor(base * (signal?.factor ?? 1) * factor + ROUNDING)))
  }

  #live<T extends { readonly expiresAtMs: number | null }>(items: readonly T[]): readonly T[] {
    if (items.length === 0) return items
    const nowMs = this.#nowMs()
    return items.filter(({ expiresAtMs }) => expiresAtMs === null || expiresAtMs > nowMs)
  }

  #liveFactor(): number {
    if (this.#factor === undefined) return 1
    const { factor, expiresAtMs } = this.#factor
    if (expiresAtMs === null || expiresAtMs > this.#nowMs()) return factor
    this.setGlobalFactor(undefined)
    return 1
  }

  #nowMs(): number {
    return this.#clock.nowUs() / 1000
  }

  #ownerOf(fact: string, subject: Subject): string | undefined {
    if (fact !== 'ip') return readerOf(fact)(subject)
    return typeof subject.ip === 'string' ? canonicalAddress(subject.ip, this.#ipv6Prefix) : undefined
  }

  /** Once per rule, though it may change several limits. */
  #apply(kind: AppliedException['kind'], id: string, ruleId: string | null, effect: OverrideEffect): void {
    const { list } = this.#applied
    if (list.some((one) => one.kind === kind && one.id === id && one.ruleId === ruleId)) return
    this.#applied = { ...this.#applied, list: [...list, { kind, id, ruleId, effect }] }
  }

  /** Number of overrides after a change. Proportional to the change, not to all overrides. */
  #countAfter(set: readonly Override[], removed: ReadonlySet<string>): number {
    let count = this.#byId.size
    for (const id of removed) if (this.#byId.has(id)) count -= 1
    for (const id of new Set(set.map((override) => override.id))) {
      if (removed.has(id) || !this.#byId.has(id)) count += 1
    }
    return count
  }

  #set(given: Override): void {
    this.#remove(given.id)
    const override = this.#canonical(given)
    this.#byId.set(override.id, override)
    this.#change(override, (key) => ({ ...key, overrides: [...key.overrides, override] }))
    if (override.ruleId === null && isBan(override)) this.#countBan(override.fact, 1)
  }

  #remove(id: string): void {
    const override = this.#byId.get(id)
    if (override === undefined) return
    this.#byId.delete(id)
    const isOther = (other: Override) => other !== override
    this.#change(override, (key) => ({ ...key, overrides: key.overrides.filter(isOther) }))
    if (override.ruleId === null && isBan(override)) this.#countBan(override.fact, -1)
  }

  #countBan(fact: string, change: number): void {
    const count = (this.#bans.get(fact) ?? 0) + change
    if (count === 0) this.#bans.delete(fact)
    else this.#bans.set(fact, count)
  }

  #change({ fact, owner }: Keyed, changed: (key: KeyExceptions) => KeyExceptions): void {
    this.#byKey.change(fact, owner, (before = NO_EXCEPTIONS) => {
      const after = changed(before)
      return after.overrides.length + after.signals.length === 0 ? undefined : after
    })
  }

  #canonical<T extends Keyed>(given: T): T {
    const owner = canonicalOwner(given.fact, given.owner, this.#ipv6Prefix)
    return owner === given.owner ? given : { ...given, owner }
  }

  #countAll(): void {
    this.#changes += 1
    this.#any = !this.#byKey.isEmpty || this.#factor !== undefined
  }
}

type Keyed = Pick<Override, 'fact' | 'owner'>

/** The factor of a rule for a signal. */
type Reaction = { readonly kind: string; readonly factor: number }

function isBan({ effect }: Override): boolean {
  return 'ban' in effect
}

function isExemption({ effect }: Override): boolean {
  return 'exempt' in effect
}

function statusOf({ effect }: Override): 403 | undefined {
  return 'ban' in effect && effect.ban === 403 ? 403 : undefined
}

function unitsUnder({ effect }: Override, units: number): number {
  if ('limit' in effect) return effect.limit
  return 'factor' in effect ? units * effect.factor : units
}

/** The override that gives the limit the fewest units. Without a name, `limit` is for a rule's only limit. */
function strictest(
  { name, limit }: CompiledLimit,
  overrides: readonly Override[],
  isOnly: boolean,
): Override | undefined {
  let least: Override | undefined
  for (const override of overrides) {
    const { effect } = override
    const applies = 'limit' in effect ? (effect.limitName === undefined ? isOnly : effect.limitName === name) : true
    if (!applies) continue
    if (least === undefined || unitsUnder(override, limit.units) < unitsUnder(least, limit.units)) least = override
  }
  return least
}

/** The smallest factor that the rule has for these signals. */
function strongest({ rule: { on_signal: onSignal = {} } }: CompiledRule, signals: readonly Signal[]) {
  let least: Reaction | undefined
  for (const { kind, severity } of signals) {
    const reaction = Object.hasOwn(onSignal, kind) ? onSignal[kind] : undefined
    if (reaction === undefined || rank(severity) < rank(reaction.min_severity ?? 'low')) continue
    if (least === undefined || reaction.factor < least.factor) least = { kind, factor: reaction.factor }
  }
  return least
}

function rank(severity: Severity): number {
  return SEVERITIES.indexOf(severity)
}
