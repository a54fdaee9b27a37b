// One version of all rules: turns a subject into the charges it has to pay. Immutable, so a check sees it as a whole.

import type { Clock } from '../clock.ts'
import type { Plan } from '../decision.ts'
import { faultText, LimiterError } from '../errors.ts'
import { canonicalPath } from '../http/path.ts'
import type { BucketName, Charge } from '../store/store.ts'
import type { Subject } from '../subject.ts'
import { addressReader, type CompiledLimit, type CompiledRule, type CompileOptions, compileRules } from './compile.ts'
import type { FactReader } from './condition.ts'
import { RuleIndex } from './match.ts'
import type { Rule } from './rule.ts'

const COST_MAX = 1_000_000_000
/** Longer facts are no names of anybody: refused before they are hashed, stored or logged. */
export const FACT_LENGTH_MAX = 1024

const NO_PLAN: Plan = { charges: [], limits: [], op: undefined }

export class RuleSet {
  readonly rules: readonly Rule[]
  readonly version: number
  readonly #compiled: readonly CompiledRule[]
  readonly #index: RuleIndex
  readonly #clock: Clock
  readonly #grouped: boolean
  readonly #expiring: boolean
  readonly #address: FactReader

  constructor(rules: readonly Rule[], version: number, options: CompileOptions, clock: Clock) {
    this.rules = rules
    this.version = version
    this.#compiled = compileRules(rules, options)
    this.#index = new RuleIndex(this.#compiled)
    this.#clock = clock
    this.#grouped = this.#compiled.some(({ group }) => group !== undefined)
    this.#expiring = this.#compiled.some(({ expiresUs }) => expiresUs !== Number.POSITIVE_INFINITY)
    this.#address = addressReader(options.ipv6Prefix)
  }

  /** What a request has to pay, and for which limits. A permit is named by the request. */
  plan(subject: Subject, requestId: string | (() => string)): Plan {
    const rules = this.#match(subject)
    if (rules.length === 0) return NO_PLAN
    const limits: CompiledLimit[] = []
    const charges: Charge[] = []
    const cost = subject.cost === undefined ? 1 : checkedCost('cost', subject.cost)
    let permits = false
    for (const rule of rules) {
      const refused = this.#charge(rule, subject, cost, limits, charges)
      if (refused !== undefined) return refused
      if (rule.permits) permits = true
    }
    if (!permits) return { charges, limits, op: undefined }
    return { charges, limits, op: { id: typeof requestId === 'string' ? requestId : requestId() } }
  }

  /** Every bucket that a rule can have for one key. */
  bucketsOf(ruleId: string, key: string | Readonly<Record<string, string>>): BucketName[] {
    const rule = this.#compiled.find(({ id }) => id === ruleId)
    if (rule === undefined) throw invalid('ruleId', ruleId, 'give the id of a rule in force')
    const subject = subjectOfKey(rule, key)
    const owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    if (owner === undefined || detail === undefined) {
      throw invalid('key', key, `give every fact of the key: ${rule.rule.scope.join(', ')}`)
    }
    const limits = [...rule.limits, ...[...rule.limitsByPlan.values()].flat()]
    return limits.map(({ limit }) => ({ limit, owner, detail }))
  }

  #match(subject: Subject): CompiledRule[] {
    const { method, path } = subject
    const matched: CompiledRule[] = []
    const canonical = path === undefined ? '/' : canonicalPath(path)
    const facts = path === undefined || canonical === path ? subject : { ...subject, path: canonical }
    this.#index.match(facts, method === undefined ? '' : method.toUpperCase(), canonical, matched)
    const live = this.#expiring ? unexpired(matched, this.#clock.nowUs()) : matched
    return this.#grouped ? onePerGroup(live) : live
  }

  /** Adds the charges of one rule; a plan of its own when the rule refuses the request whatever its buckets hold. */
  #charge(
    rule: CompiledRule,
    subject: Subject,
    cost: number,
    limits: CompiledLimit[],
    charges: Charge[],
  ): Plan | undefined {
    let owner = rule.owner(subject)
    const detail = rule.detail === undefined ? '' : rule.detail(subject)
    let asked = rule.limitsByPlan.size === 0 ? rule.limits : (rule.limitsByPlan.get(subject.plan ?? '') ?? rule.limits)
    if (owner === undefined || detail === undefined) {
      if (rule.onMissing === 'skip') return undefined
      owner = rule.onMissing === 'by_ip' ? this.#address(subject) : undefined
      if (owner === undefined) return barred(rule.limits[0])
      asked = rule.limitsByIp
    }
    if (owner.length > FACT_LENGTH_MAX) throw tooLong(rule, owner)
    if (detail !== undefined && detail.length > FACT_LENGTH_MAX) throw tooLong(rule, detail)
    const units = typeof rule.cost === 'number' ? rule.cost * cost : attributeCost(rule.cost(subject), rule)
    const kind = rule.shadow ? 'shadow' : 'enforce'
    for (const compiled of asked) {
      if (compiled.limit.units === 0 && !rule.shadow) return barred(compiled)
      limits.push(compiled)
      charges.push({ limit: compiled.limit, owner, detail: detail ?? '', min: units, max: units, kind })
    }
    return undefined
  }
}

function unexpired(rules: CompiledRule[], nowUs: number): CompiledRule[] {
  return rules.filter(({ expiresUs }) => expiresUs > nowUs)
}

/** Of the rules of one group only the one with the highest priority applies; ties go to the id that sorts first. */
function onePerGroup(rules: readonly CompiledRule[]): CompiledRule[] {
  const best = new Map<string, CompiledRule>()
  for (const rule of rules) {
    if (rule.group === undefined) continue
    const held = best.get(rule.group)
    const wins =
      held === undefined || rule.priority > held.priority || (rule.priority === held.priority && rule.id < held.id)
    if (wins) best.set(rule.group, rule)
  }
  return rules.filter((rule) => rule.group === undefined || best.get(rule.group) === rule)
}

/** Nobody can pass: a limit of 0, or a key whose fact is missing where that is no excuse. The store is not asked. */
function barred(compiled: CompiledLimit | undefined): Plan {
  if (compiled === undefined) return NO_PLAN
  const limit = { ...compiled.limit, units: 0, capacity: 0 }
  const kind = compiled.rule.shadow ? 'shadow' : 'enforce'
  const charge: Charge = { limit, owner: '', detail: '', min: 1, max: 1, kind }
  return { charges: [charge], limits: [{ ...compiled, limit }], op: undefined }
}

function checkedCost(field: string, cost: number): number {
  if (Number.isSafeInteger(cost) && cost >= 1 && cost <= COST_MAX) return cost
  throw invalidSubject(field, cost, `give a whole number from 1 to ${COST_MAX}`)
}

/** A request without the attribute that carries its cost is worth 1. */
function attributeCost(text: string | undefined, rule: CompiledRule): number {
  return text === undefined ? 1 : checkedCost(`attributes.${rule.rule.cost}`, Number(text))
}

/** A subject that has just the facts of a key. */
function subjectOfKey({ rule }: CompiledRule, key: string | Readonly<Record<string, string>>): Subject {
  const facts = typeof key === 'string' ? { [rule.scope[0] ?? '']: key } : key
  const attributes: Record<string, string> = {}
  for (const [fact, value] of Object.entries(facts)) attributes[fact.replace(/^attributes\./, '')] = value
  const { ip, user, api_key: apiKey, tenant, plan, method = '', endpoint = '' } = facts
  const [verb, path] = endpoint.includes(' ') ? endpoint.split(' ', 2) : [method, endpoint]
  return { ip, user, apiKey, tenant, plan, method: verb, path, attributes }
}

function tooLong(rule: CompiledRule, text: string): LimiterError {
  return invalidSubject(rule.scope, text, `give a key of at most ${FACT_LENGTH_MAX} characters`)
}

function invalidSubject(field: string, value: unknown, fix: string): LimiterError {
  const fault = { field, value, fix }
  return new LimiterError('SUBJECT_INVALID', faultText(fault), { faults: [fault] })
}

function invalid(field: string, value: unknown, fix: string): LimiterError {
  const fault = { field, value, fix }
  return new LimiterError('OPTION_INVALID', faultText(fault), { faults: [fault] })
}
