// One immutable version of all rules. Turns a subject into charges.

import type { Limit } from '../algorithms/limit.ts'
import type { Clock } from '../clock.ts'
import { type LimiterError, optionInvalid, subjectInvalid } from '../errors.ts'
import { mapped, type Sliced } from '../slices.ts'
import type { BucketName, Charge } from '../store/store.ts'
import { requireKnownFacts, type Subject } from '../subject.ts'
import { bucketsOfKey, hasScopeOf, type Key, limitsById, namedBucket } from './bucket-names.ts'
import { ChargeSet, emptyList, PairedCharge, PairedChargeSet, RuleCharge } from './charge-set.ts'
import { addressReader, type CompiledLimit, type CompiledRule, type CompileOptions, compiling } from './compile.ts'
import { type FactReader, textOf } from './condition.ts'
import { costOf, unitsOf } from './cost.ts'
import type { Exceptions } from './exceptions.ts'
import {
  applies,
  chargesNothing,
  explainGroups,
  LEFT_OUT,
  type Mismatch,
  mismatchOf,
  type RuleExplanation,
} from './explain.ts'
import { onePerGroup, outranks } from './groups.ts'
import type { LimitName } from './limit-names.ts'
import { matchingRules, type PathMatch, RuleIndex } from './match.ts'
import { parsing, writtenRule } from './parse.ts'
import type { ParsedRollout } from './rollout.ts'
import type { Rule } from './rule.ts'
import {
  type CompiledRollouts,
  chooseVersions,
  compilingRollouts,
  explainRollouts,
  NO_ROLLOUTS,
  pairsAmong,
  unpaired,
  versionsOf,
  withVersions,
} from './versions.ts'

/** Longer facts are rejected before they are hashed, stored or logged. */
export const FACT_LENGTH_MAX = 1024

/** Rules disabled by the kill switch: these, or all. */
export type Disabled = ReadonlySet<string> | 'everything'

export const NOTHING_DISABLED: Disabled = new Set()

export class RuleSet {
  readonly rules: readonly Rule[]
  readonly version: number
  readonly #compiled: readonly CompiledRule[]
  readonly #index: RuleIndex
  readonly #options: CompileOptions
  readonly #clock: Clock
  readonly #rollouts: CompiledRollouts
  readonly #rolling: boolean
  readonly #grouped: boolean
  readonly #expiring: boolean
  readonly #address: FactReader
  readonly #nothing: ChargeSet
  #byId: ReadonlyMap<string, Rule> | undefined
  #compiledById: ReadonlyMap<string, CompiledRule> | undefined
  #limits: ReadonlyMap<string, readonly CompiledLimit[]> | undefined

  private constructor(
    rules: readonly Rule[],
    version: number,
    compiled: readonly CompiledRule[],
    index: RuleIndex,
    rollouts: CompiledRollouts,
    options: CompileOptions,
    clock: Clock,
  ) {
    this.rules = rules
    this.version = version
    this.#compiled = compiled
    this.#index = index
    this.#rollouts = rollouts
    this.#options = options
    this.#clock = clock
    const indexed = withVersions(compiled, rollouts)
    this.#rolling = rollouts.byRule.size > 0
    this.#grouped = indexed.some(({ group }) => group !== undefined)
    this.#expiring = indexed.some(({ expiresUs }) => expiresUs !== Number.POSITIVE_INFINITY)
    this.#address = addressReader(options.ipv6Prefix)
    this.#nothing = new ChargeSet([], [], undefined, version)
  }

  /**
   * From rules in any spelling. Throws RULE_INVALID. Rules that are unchanged since `previous`, a set with the same
   * options, are reused: this is cheap, and leases of their buckets stay valid.
   */
  static *of(
    input: unknown,
    version: number,
    options: CompileOptions,
    clock: Clock,
    previous?: RuleSet,
    rollouts: readonly ParsedRollout[] = [],
  ): Sliced<RuleSet> {
    const known = new Map<Rule, CompiledRule>()
    yield* mapped(previous === undefined ? [] : previous.#compiled, (compiled) => known.set(compiled.rule, compiled))
    const parsed = yield* parsing(input, known)
    const rules = previous ? yield* mapped(parsed, (rule) => previous.#unchanged(rule) ?? rule) : parsed
    const compiled = yield* compiling(rules, options, known)
    return yield* RuleSet.#indexed(rules, version, compiled, options, clock, rollouts, previous)
  }

  static *#indexed(
    rules: readonly Rule[],
    version: number,
    compiled: readonly CompiledRule[],
    options: CompileOptions,
    clock: Clock,
    parsed: readonly ParsedRollout[],
    previous: RuleSet | undefined,
  ): Sliced<RuleSet> {
    let rollouts = NO_ROLLOUTS
    if (parsed.length > 0) {
      const ruleById = new Map(rules.map((rule) => [rule.rule_id, rule]))
      const compiledById = new Map(compiled.map((rule) => [rule.id, rule]))
      const of = { rule: (id: string) => ruleById.get(id), compiled: (id: string) => compiledById.get(id) }
      rollouts = yield* compilingRollouts(
        parsed,
        of,
        options,
        previous === undefined ? NO_ROLLOUTS : previous.#rollouts,
      )
    }
    const index = yield* RuleIndex.of(withVersions(compiled, rollouts))
    return new RuleSet(rules, version, compiled, index, rollouts, options, clock)
  }

  /** The same rules with other rollouts. */
  withRollouts(rollouts: readonly ParsedRollout[]): Sliced<RuleSet> {
    return RuleSet.#indexed(this.rules, this.version, this.#compiled, this.#options, this.#clock, rollouts, this)
  }

  rule(ruleId: string): Rule | undefined {
    this.#byId ??= new Map(this.rules.map((rule) => [rule.rule_id, rule]))
    return this.#byId.get(ruleId)
  }

  /** The rule of this set with the same content, and the same written fields. */
  #unchanged(rule: Rule): Rule | undefined {
    const before = this.rule(rule.rule_id)
    if (before === undefined || before === rule) return before
    if (before.version !== rule.version || before.updated_at !== rule.updated_at) return undefined
    const isSame = JSON.stringify(before) === JSON.stringify(rule)
    return isSame && JSON.stringify(writtenRule(before)) === JSON.stringify(writtenRule(rule)) ? before : undefined
  }

  /** Charges of a request, and their limits. `requestId` identifies permits. */
  chargesFor(
    given: Subject,
    requestId: string | (() => string),
    disabled: Disabled = NOTHING_DISABLED,
    exceptions?: Exceptions,
  ): ChargeSet {
    const { version } = this
    if (typeof given !== 'object' || given === null) throw subjectInvalid('subject', given, 'give an object of facts')
    requireKnownFacts(given)
    const cost = costOf(given)
    const match = this.#index.matchPath(textOf('path', given.path) ?? '/')
    const subject = withPath(given, match)
    const matched = this.#match(subject, match, disabled)
    const rules = exceptions && this.#rolling ? unpaired(matched, subject, exceptions) : matched
    const banned = exceptions !== undefined && disabled !== 'everything' && exceptions.begin().bans(subject)
    if (rules.length === 0 && !banned) return this.#nothing
    const [first] = rules
    const isSole = rules.length === 1 && !banned && first?.sole
    const sole = isSole ? this.#chargeSole(first, isSole, subject, cost, exceptions) : undefined
    if (sole !== undefined) return sole
    const limits = emptyList<CompiledLimit>()
    const charges = emptyList<Charge>()
    let permits = false
    let ban: CompiledLimit | undefined
    for (const rule of rules) {
      const zeroLimit = this.#charge(rule, subject, cost, limits, charges, exceptions)
      if (zeroLimit !== undefined && (ban === undefined || outranks(rule, ban.rule))) ban = zeroLimit
      if (rule.permits) permits = true
    }
    const applied = exceptions?.applied
    if (ban !== undefined) return new ChargeSet([refusalCharge(ban)], [ban], undefined, version, applied)
    if (banned) return new ChargeSet([], [], undefined, version, applied)
    const op = permits ? { id: typeof requestId === 'string' ? requestId : requestId() } : undefined
    const chargeSet = new ChargeSet(charges, limits, op, version, applied)
    const pairs = this.#rolling && hasVersion(rules) ? pairsAmong(rules, subject) : undefined
    return pairs === undefined ? chargeSet : new PairedChargeSet(chargeSet, pairs)
  }

  /** Fast path: one rule with one limit, and all facts of its key. Undefined: take the general path. */
  #chargeSole(
    rule: CompiledRule,
    sole: CompiledLimit,
    subject: Subject,
    cost: number,
    exceptions: Exceptions | undefined,
  ): ChargeSet | undefined {
    const owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    if (owner === undefined || owner.length > FACT_LENGTH_MAX) return undefined
    if (detail === undefined || detail.length > FACT_LENGTH_MAX) return undefined
    if (exceptions?.find(rule, sole.limit.fact, owner) !== undefined) return undefined
    const units = unitsOf(rule, subject, cost)
    const charge = new RuleCharge(sole.limit, owner, detail, units, rule.shadow ? 'shadow' : 'enforce')
    return new ChargeSet([charge], rule.limits, undefined, this.version)
  }

  /** Every bucket that a rule can have for one key, under each of its versions. */
  bucketsOf(ruleId: string, key: Key, exceptions?: Exceptions): BucketName[] {
    const compiled = this.#compiled.find(({ id }) => id === ruleId)
    const versions = versionsOf(this.#rollouts, ruleId)
    const [rule, ...others] = compiled === undefined ? versions : [compiled, ...versions]
    if (rule === undefined) throw optionInvalid('ruleId', ruleId, 'give the id of an active rule')
    const canonical = (subject: Subject) => withPath(subject, this.#index.matchPath(subject.path ?? '/'))
    return [rule, ...others.filter(hasScopeOf(rule))].flatMap((version) =>
      bucketsOfKey(version, key, canonical, this.#address, exceptions),
    )
  }

  /**
   * The bucket that a remote node names. Undefined if this process has to decide the whole request: the rule was
   * removed or disabled, is under rollout, bans, or has an exception for the key.
   */
  namedBucket(
    name: LimitName,
    facts: Readonly<Record<string, string>>,
    disabled: Disabled,
    exceptions?: Exceptions,
  ): BucketName | undefined {
    const { ruleId } = name
    this.#compiledById ??= new Map(this.#compiled.map((rule) => [rule.id, rule]))
    const rule = this.#compiledById.get(ruleId)
    if (rule === undefined || isDisabled(disabled, ruleId) || this.#rollouts.byRule.has(ruleId)) return undefined
    const canonical = (subject: Subject) => withPath(subject, this.#index.matchPath(subject.path ?? '/'))
    const bucket = namedBucket(rule, name, facts, canonical, this.#address)
    if (bucket === undefined || bucket.limit.units === 0) return undefined
    if (bucket.owner.length > FACT_LENGTH_MAX || bucket.detail.length > FACT_LENGTH_MAX) return undefined
    return exceptions?.begin().find(rule, bucket.limit.fact, bucket.owner) === undefined ? bucket : undefined
  }

  /** Whether any rule is under rollout. */
  get isRollingOut(): boolean {
    return this.#rolling
  }

  /** The limits with an id, for one owner; none if its rule was removed, or is for another layer. */
  limitsOf(id: string, owner: string, exceptions?: Exceptions): readonly Limit[] {
    this.#limits ??= limitsById([...this.#compiled, ...versionsOf(this.#rollouts)])
    const compiled = this.#limits.get(id) ?? []
    return compiled.map((one) => (exceptions?.limitFor(one, owner) ?? one).limit)
  }

  /** Effect of each rule on a request, with the reason. In the order of the rules, then new ones under rollout. */
  *explain(given: Subject, disabled: Disabled, exceptions?: Exceptions): Sliced<RuleExplanation[]> {
    const match = this.#index.matchPath(textOf('path', given.path) ?? '/')
    const subject = withPath(given, match)
    const readings = [match, ...match.otherReadings].map(({ path }) => path)
    const nowUs = this.#clock.nowUs()
    const compiled = new Map(this.#compiled.map((rule) => [rule.id, rule]))
    const variants = explainRollouts(this.#rollouts, subject, compiled)
    const why = new Map<string, Mismatch>()
    const ids = [...new Set([...this.rules.map(({ rule_id: id }) => id), ...variants.keys()])]
    for (const id of ids) {
      const live = compiled.get(id)
      const rule = live?.rule ?? (this.rule(id) as Rule) // a rule under rollout has a compiled version
      const mismatch = mismatchOf(rule, live, subject, readings, nowUs)
      if (mismatch !== undefined) why.set(id, mismatch)
      else if (isDisabled(disabled, id)) why.set(id, { reason: 'kill_switch', detail: 'disabled by the kill switch' })
      else if (variants.get(id)?.isLeftOut) why.set(id, LEFT_OUT)
      yield
    }
    const matched = [...compiled.values()].filter(({ id }) => !why.has(id))
    this.#explainCharges(subject, explainGroups(matched, readings, why), why, exceptions)
    return ids.map((ruleId) => {
      const { variant } = variants.get(ruleId) ?? {}
      return { ruleId, ...(variant && { variant }), ...(why.get(ruleId) ?? applies([], [])) }
    })
  }

  /** Adds the result of each matching rule. */
  #explainCharges(
    subject: Subject,
    chosen: ReadonlySet<CompiledRule>,
    why: Map<string, Mismatch>,
    exceptions: Exceptions | undefined,
  ): void {
    const ban = exceptions?.begin().bans(subject) ? exceptions.applied.list[0] : undefined
    let banning: CompiledRule | undefined
    for (const rule of chosen) {
      exceptions?.begin()
      const limits: CompiledLimit[] = []
      const zeroLimit = this.#charge(rule, subject, costOf(subject), limits, [], exceptions)
      const applied = exceptions?.applied.list ?? []
      if (zeroLimit !== undefined && (banning === undefined || outranks(rule, banning))) banning = rule
      const charged = zeroLimit === undefined ? limits : [zeroLimit]
      why.set(rule.id, charged.length > 0 ? applies(charged, applied) : chargesNothing(rule, subject, applied))
    }
    const by = banning?.id ?? (ban && `override ${ban.id}`)
    for (const { id } of chosen) {
      if (by === undefined || id === banning?.id || why.get(id)?.reason !== null) continue
      why.set(id, { reason: 'barred', detail: `${by} refuses every request, so no other rule is charged` })
    }
  }

  #match(subject: Subject, match: PathMatch, disabled: Disabled): readonly CompiledRule[] {
    const matched = matchingRules(match, subject, textOf('method', subject.method) ?? '')
    const live = this.#expiring ? unexpired(matched, this.#clock.nowUs()) : matched
    const left = disabled === NOTHING_DISABLED ? live : live.filter(({ id }) => !isDisabled(disabled, id))
    const versioned = this.#rolling && hasVersion(left)
    const chosen = versioned ? chooseVersions(left, subject) : this.#grouped ? onePerGroup(left) : left
    if (match.otherReadings.length === 0) return chosen
    // Groups are resolved per reading: a path is exempt only if it is exempt in every reading.
    return [...new Set([chosen, ...match.otherReadings.map((other) => this.#match(subject, other, disabled))].flat())]
  }

  /** Adds the charges of one rule, or returns its limit of 0, which refuses every request. */
  #charge(
    rule: CompiledRule,
    subject: Subject,
    cost: number,
    limits: CompiledLimit[],
    charges: Charge[],
    exceptions?: Exceptions,
  ): CompiledLimit | undefined {
    let owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    const applicable =
      rule.limitsByPlan.size === 0 ? rule.limits : (rule.limitsByPlan.get(subject.plan ?? '') ?? rule.limits)
    const missing = owner === undefined || detail === undefined
    if (missing && (rule.onMissing === 'skip' || applicable.length === 0)) return undefined
    if (missing) owner = rule.onMissing === 'by_ip' ? this.#address(subject) : undefined
    if (owner === undefined) return refuse(rule, limits, charges)
    if (owner.length > FACT_LENGTH_MAX) throw tooLong(rule, owner)
    if (detail !== undefined && detail.length > FACT_LENGTH_MAX) throw tooLong(rule, detail)
    const exception = exceptions?.find(rule, missing ? 'ip' : (rule.rule.scope[0] ?? ''), owner)
    if (exception?.bans) return refuse(rule, limits, charges)
    if (exception?.exempts) return undefined
    const units = unitsOf(rule, subject, cost)
    for (const one of applicable) {
      const usual = missing && one.byIp !== undefined ? one.byIp : one
      const compiled = exception === undefined ? usual : exception.changed(usual, applicable.length === 1)
      if (compiled.limit.units === 0 && refusesWithoutTake(rule)) return compiled
      limits.push(compiled)
      charges.push(chargeOf(compiled, owner, detail ?? '', units))
    }
    return undefined
  }
}

function isDisabled(disabled: Disabled, ruleId: string): boolean {
  return disabled === 'everything' || disabled.has(ruleId)
}

function unexpired(rules: readonly CompiledRule[], nowUs: number): CompiledRule[] {
  return rules.filter(({ expiresUs }) => expiresUs > nowUs)
}

function hasVersion(rules: readonly CompiledRule[]): boolean {
  for (const { version } of rules) if (version !== undefined) return true
  return false
}

/** Whether a limit of 0 refuses without a take. Not in shadow mode, nor in a pair: the other version is charged too. */
function refusesWithoutTake({ shadow, version }: CompiledRule): boolean {
  return !shadow && (version === undefined || version.use === 'unpaired')
}

/** Applies `on_missing: refuse`, or a ban. If it needs a take, the refusal is an ordinary outcome. */
function refuse(rule: CompiledRule, limits: CompiledLimit[], charges: Charge[]): CompiledLimit | undefined {
  if (refusesWithoutTake(rule) || rule.refusal === undefined) return rule.refusal
  limits.push(rule.refusal)
  charges.push(refusalCharge(rule.refusal))
  return undefined
}

/** A limit of 0 refuses everyone, so all clients share one charge. */
function refusalCharge(ban: CompiledLimit): Charge {
  return chargeOf(ban, '', '', 1)
}

function chargeOf({ limit, rule }: CompiledLimit, owner: string, detail: string, units: number): Charge {
  const { version, shadow } = rule
  const kind = shadow ? 'shadow' : 'enforce'
  if (version === undefined || version.use === 'unpaired') return new RuleCharge(limit, owner, detail, units, kind)
  const { rollout, use } = version
  const ownKind = use === 'counterfactual' ? use : kind
  return new PairedCharge(limit, owner, detail, units, ownKind, rollout.pair)
}

/** The subject with its path in canonical form. */
function withPath(subject: Subject, { path }: PathMatch): Subject {
  return !subject.path || subject.path === path ? subject : { ...subject, path }
}

function tooLong(rule: CompiledRule, text: string): LimiterError {
  return subjectInvalid(rule.scope, text, `give a key of at most ${FACT_LENGTH_MAX} characters`)
}
