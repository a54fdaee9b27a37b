// Versions of rules under rollout. The draw of a key is a keyed hash of salt, rule id and owner, so every node makes
// the same choice without communication, and a key that is under the candidate stays there as the share grows.

import { TAG_LENGTH } from '../algorithms/limit.ts'
import type { Sliced } from '../slices.ts'
import { HalfSipHash, type HashSeed, seedOf } from '../store/half-sip-hash.ts'
import type { Subject } from '../subject.ts'
import type { ChargedPair } from './charge-set.ts'
import {
  type CompiledLimit,
  type CompiledRollout,
  type CompiledRule,
  type CompileOptions,
  compileRule,
  compiling,
  type RuleVersion,
  type Variant,
  type VersionUse,
} from './compile.ts'
import type { Exceptions } from './exceptions.ts'
import { onePerGroup } from './groups.ts'
import { canaryProblem, isPairable, type ParsedRollout } from './rollout.ts'
import type { Rule } from './rule.ts'

/** Compiled versions by their content: unchanged ones are reused, so that leases of their buckets stay valid. */
export type KnownVersions = ReadonlyMap<string, CompiledRule | undefined>

export type CompiledRollouts = {
  readonly byRule: ReadonlyMap<string, CompiledRollout>
  readonly known: KnownVersions
}

export const NO_ROLLOUTS: CompiledRollouts = { byRule: new Map(), known: new Map() }

const NO_KNOWN_RULES: ReadonlyMap<Rule, CompiledRule> = new Map()

/** Finds the rules of a set by id. */
type RulesById = {
  readonly rule: (ruleId: string) => Rule | undefined
  readonly compiled: (ruleId: string) => CompiledRule | undefined
}

/** Compiles the rollouts for the rule set `of`. */
export function* compilingRollouts(
  rollouts: readonly ParsedRollout[],
  of: RulesById,
  options: CompileOptions,
  { known: before }: CompiledRollouts,
): Sliced<CompiledRollouts> {
  const byRule = new Map<string, CompiledRollout>()
  const known = new Map<string, CompiledRule | undefined>()
  const reused = (key: string, make: () => CompiledRule | undefined): CompiledRule | undefined => {
    const compiled = before.has(key) ? before.get(key) : make()
    known.set(key, compiled)
    return compiled
  }
  for (const rollout of rollouts) {
    const { ruleId, applied } = rollout
    const own = of.rule(ruleId)
    // Both versions have one generation: nodes that disagree for a moment migrate the bucket instead of refusing.
    const other = rollout.other && { ...rollout.other, version: own?.version ?? rollout.other.version }
    let otherCompiled: CompiledRule | undefined
    if (other !== undefined) {
      const key = JSON.stringify(other)
      const [compiled] = before.has(key) ? [] : yield* compiling([other], options, NO_KNOWN_RULES)
      otherCompiled = reused(key, () => compiled)
    }
    const [current, candidate] = applied ? [otherCompiled, of.compiled(ruleId)] : [of.compiled(ruleId), otherCompiled]
    const decides = current ?? candidate
    if (decides !== undefined) {
      byRule.set(ruleId, compileRollout(rollout, byRule.size + 1, { current, candidate }, decides, options, reused))
    }
    yield
  }
  return { byRule, known }
}

function compileRollout(
  { ruleId, salt, attempt, share, pairShare, applied }: ParsedRollout,
  pair: number,
  compiled: Readonly<Record<Variant, CompiledRule | undefined>>,
  decides: CompiledRule,
  options: CompileOptions,
  reused: (key: string, make: () => CompiledRule) => CompiledRule | undefined,
): CompiledRollout {
  const pairable = [compiled.current, compiled.candidate].every((one) => one === undefined || isPairable(one.rule))
  const versions: Record<Variant, Partial<Record<VersionUse, CompiledRule>>> = { current: {}, candidate: {} }
  const tag = tagOf(salt, ruleId, attempt)
  const rollout: CompiledRollout = {
    seed: drawSeed(salt, ruleId),
    share,
    pairShare: pairable ? pairShare : 0,
    pair,
    owner: decides.owner,
    isShared: canaryProblem(decides.rule) !== undefined,
    withoutOwner: applied ? 'candidate' : 'current',
    versions,
  }
  for (const variant of ['current', 'candidate'] as const) {
    const unpairedRule = compiled[variant]
    if (unpairedRule === undefined) continue
    versions[variant].unpaired = asVersion(unpairedRule, { rollout, variant, use: 'unpaired' })
    if (!pairable) continue
    const { rule } = unpairedRule
    for (const use of ['paired', 'counterfactual'] as const) {
      const key = `${use} ${variant} ${tag} ${JSON.stringify(rule)}`
      const comparedRule = reused(key, () => compileRule(rule, options, { variant, use, tag }))
      if (comparedRule !== undefined) versions[variant][use] = asVersion(comparedRule, { rollout, variant, use })
    }
  }
  return rollout
}

/** A copy of the rule, and of its limits that refer to it. Buckets stay the same. */
function asVersion(compiled: CompiledRule, version: RuleVersion): CompiledRule {
  const rule: CompiledRule = { ...compiled, version, sole: undefined }
  const own = (limit: CompiledLimit): CompiledLimit => ({ ...limit, rule, byIp: limit.byIp && own(limit.byIp) })
  return Object.assign(rule, {
    limits: compiled.limits.map(own),
    limitsByPlan: new Map([...compiled.limitsByPlan].map(([plan, limits]) => [plan, limits.map(own)])),
    refusal: compiled.refusal && own(compiled.refusal),
  })
}

/** The rules to index: both versions of those under rollout. */
export function withVersions(compiled: readonly CompiledRule[], { byRule }: CompiledRollouts): readonly CompiledRule[] {
  if (byRule.size === 0) return compiled
  const both = [...byRule.values()].flatMap(({ versions: { current, candidate } }) => [
    current.unpaired,
    candidate.unpaired,
  ])
  return [...compiled.filter(({ id }) => !byRule.has(id)), ...both.filter((rule) => rule !== undefined)]
}

/** All versions that a rule under rollout can be charged to, or those of all rules. */
export function versionsOf({ byRule }: CompiledRollouts, ruleId?: string): CompiledRule[] {
  const rollouts = ruleId === undefined ? [...byRule.values()] : [byRule.get(ruleId)].filter((one) => one !== undefined)
  return rollouts.flatMap(({ versions: { current, candidate } }) => {
    const all = [current.unpaired, current.counterfactual, candidate.unpaired, candidate.counterfactual]
    return all.filter((rule) => rule !== undefined)
  })
}

/**
 * Returns the version of each rule under rollout that applies to the request, and puts its compiled rule into
 * `compiled`. If that version has no compiled rule here, the other version is used.
 */
export function explainRollouts(
  { byRule }: CompiledRollouts,
  subject: Subject,
  compiled: Map<string, CompiledRule>,
): ReadonlyMap<string, { readonly variant: Variant; readonly isLeftOut: boolean }> {
  const variants = new Map<string, { variant: Variant; isLeftOut: boolean }>()
  for (const [id, rollout] of byRule) {
    const { enforced: variant } = choiceOf(rollout, subject)
    const { unpaired: own } = rollout.versions[variant]
    const shown = own ?? rollout.versions[otherVariant(variant)].unpaired
    variants.set(id, { variant, isLeftOut: own === undefined })
    if (shown !== undefined) compiled.set(id, shown)
  }
  return variants
}

const HASH = new HalfSipHash()

function drawSeed(salt: string, ruleId: string): HashSeed {
  const word = (from: number) => Number.parseInt(salt.slice(from, from + 8) || '0', 16)
  return HASH.seedAfter(seedOf(word(0), word(8)), `${salt.toLowerCase()}\n${ruleId}`)
}

/** Differs between rollouts and between attempts: their counterfactual buckets are separate. */
function tagOf(salt: string, ruleId: string, attempt: number): string {
  HASH.hash(drawSeed(salt, ruleId), String(attempt), 'tag')
  return (HASH.high >>> 0).toString(16).padStart(8, '0').slice(0, TAG_LENGTH)
}

/** Draw of a key, from 0 up to 1. */
function drawOf({ seed }: CompiledRollout, owner: string): number {
  HASH.hash(seed, owner, '')
  return ((HASH.high >>> 0) * 2 ** 21 + (HASH.low >>> 11)) / 2 ** 53
}

/** The version that a request is under, and whether it is charged to both. */
export function choiceOf(rollout: CompiledRollout, subject: Subject): { enforced: Variant; isPaired: boolean } {
  const owner = rollout.owner(subject)
  if (owner === undefined) return { enforced: rollout.withoutOwner, isPaired: false }
  const draw = drawOf(rollout, owner)
  const isPaired = rollout.isShared ? rollout.pairShare > 0 : draw < rollout.pairShare
  return { enforced: draw < rollout.share ? 'candidate' : 'current', isPaired }
}

/**
 * The rules to charge, of all matching ones: one version of each rule under rollout, one rule of each group, and the
 * counterfactual versions of pairs.
 */
export function chooseVersions(matched: readonly CompiledRule[], subject: Subject): readonly CompiledRule[] {
  const choices = new Map<CompiledRollout, ReturnType<typeof choiceOf>>()
  for (const { version } of matched) {
    if (version !== undefined && !choices.has(version.rollout)) {
      choices.set(version.rollout, choiceOf(version.rollout, subject))
    }
  }
  const enforced = matched.filter(
    ({ version }) => version === undefined || choices.get(version.rollout)?.enforced === version.variant,
  )
  const applied = onePerGroup(enforced)
  const paired = [...choices].filter(([, { isPaired }]) => isPaired).map(([rollout]) => rollout)
  return paired.reduce((chosen, rollout) => withPair(chosen, rollout, matched, enforced, applied), applied)
}

/**
 * Replaces a version in `chosen` by its paired form and adds the other one. Unchanged if other rules would apply under
 * the other version, because of groups: then the two cannot be compared.
 */
function withPair(
  chosen: CompiledRule[],
  rollout: CompiledRollout,
  matched: readonly CompiledRule[],
  enforced: readonly CompiledRule[],
  applied: readonly CompiledRule[],
): CompiledRule[] {
  const isOwn = ({ version }: CompiledRule) => version?.rollout === rollout
  const others = enforced.filter((rule) => !isOwn(rule))
  const alternative = onePerGroup([...others, ...matched.filter((rule) => isOwn(rule) && !enforced.includes(rule))])
  const [now, then] = [applied, alternative].map((rules) => rules.filter((rule) => !isOwn(rule)))
  if (now?.length !== then?.length || now?.some((rule) => !then?.includes(rule))) return chosen
  const inUse = (rules: readonly CompiledRule[], use: VersionUse) =>
    rules.filter(isOwn).flatMap(({ version }) => (version && rollout.versions[version.variant][use]) ?? [])
  return [
    ...chosen.filter((rule) => !isOwn(rule)),
    ...inUse(applied, 'paired'),
    ...inUse(alternative, 'counterfactual'),
  ]
}

/** A key with an exception is not compared: its limits are not those of the two versions. */
export function unpaired(
  rules: readonly CompiledRule[],
  subject: Subject,
  exceptions: Exceptions,
): readonly CompiledRule[] {
  const excepted = new Set(
    rules.flatMap((rule) => {
      const owner = rule.version === undefined ? undefined : rule.owner(subject)
      const isNone = owner === undefined || exceptions.find(rule, rule.rule.scope[0] ?? '', owner) === undefined
      return isNone || rule.version === undefined ? [] : rule.version.rollout
    }),
  )
  if (excepted.size === 0) return rules
  return rules.flatMap((rule) => {
    const { version } = rule
    if (version === undefined || !excepted.has(version.rollout)) return rule
    return version.use === 'counterfactual' ? [] : (version.rollout.versions[version.variant].unpaired ?? rule)
  })
}

/** The pairs among the rules to charge; undefined if there are none. */
export function pairsAmong(rules: readonly CompiledRule[], subject: Subject): readonly ChargedPair[] | undefined {
  let pairs: Map<number, ChargedPair> | undefined
  for (const { id, version } of rules) {
    if (version === undefined || version.use === 'unpaired' || pairs?.has(version.rollout.pair)) continue
    const { rollout, variant, use } = version
    const enforced = use === 'paired' ? variant : otherVariant(variant)
    pairs ??= new Map()
    pairs.set(rollout.pair, { ruleId: id, pair: rollout.pair, owner: clientOf(rollout, subject), enforced })
  }
  return pairs && [...pairs.values()]
}

function otherVariant(variant: Variant): Variant {
  return variant === 'current' ? 'candidate' : 'current'
}

/** Identifies the client of a pair: the owner, or another fact if the bucket is global. */
function clientOf({ owner, isShared }: CompiledRollout, subject: Subject): string {
  const { user, apiKey, tenant, ip } = subject
  return (isShared ? (user ?? apiKey ?? tenant ?? ip) : undefined) ?? owner(subject) ?? ''
}
