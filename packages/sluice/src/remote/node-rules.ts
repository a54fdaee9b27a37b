// State of the service that a remote node follows: rules, and conditions under which only the service can decide.

import { canonicalAddress } from '../canonical/address.ts'
import { LimiterError } from '../errors.ts'
import { readerOf } from '../rules/condition.ts'
import { isFields } from '../rules/fields.ts'
import { limitNames, type ScopedName } from '../rules/limit-names.ts'
import { FIELDS, parseRules } from '../rules/parse.ts'
import type { Rule } from '../rules/rule.ts'
import type { Subject } from '../subject.ts'
import { exceptedKeyTest, type NodeState } from './state-message.ts'

/** Facts whose value in a key depends on the rule, so that a request does not tell whether it has an excepted key. */
const RULE_FACTS: readonly string[] = ['', 'endpoint', 'method']

export class NodeRules {
  readonly state: NodeState
  /** The rules that this version understands; the others without their unknown fields, if that leaves a valid rule. */
  readonly rules: readonly Rule[]
  /** Part that this version does not know, so that the service has to decide every request; undefined if none. */
  readonly unknown: string | undefined
  readonly #names: ReadonlyMap<string, ScopedName>
  readonly #isExcepted: (fact: string, owner: string) => boolean
  readonly #decidesAll: boolean

  constructor(state: NodeState) {
    this.state = state
    const { rules, unknown } = understood(JSON.parse(state.rules))
    this.rules = rules
    this.unknown = unknown ?? (state.hasUnknown ? 'the state of the service has a field' : undefined)
    this.#names = limitNames(this.rules)
    this.#isExcepted = exceptedKeyTest(state.excepted)
    this.#decidesAll =
      this.unknown !== undefined || state.decidesAll || state.excepted.facts.some((fact) => RULE_FACTS.includes(fact))
  }

  get stores(): readonly string[] {
    return [...new Set(this.rules.map(({ store }) => store))]
  }

  nameOf(limitId: string): ScopedName | undefined {
    return this.#names.get(limitId)
  }

  /** Whether only the service can decide: keys with overrides or signals, rollouts, global factor, a newer service. */
  needsService(subject: Subject): boolean {
    if (this.#decidesAll || subject.bypassToken !== undefined) return true
    for (const fact of this.state.excepted.facts) {
      const owner = fact === 'ip' ? this.#addressOf(subject) : readerOf(fact)(subject)
      if (owner !== undefined && this.#isExcepted(fact, owner)) return true
    }
    return false
  }

  #addressOf({ ip }: Subject): string | undefined {
    return typeof ip === 'string' ? canonicalAddress(ip, this.state.ipv6Prefix) : undefined
  }
}

/** Rules of a newer service may have fields and values that this version does not know. */
function understood(input: unknown): { readonly rules: readonly Rule[]; readonly unknown: string | undefined } {
  try {
    return { rules: parseRules(input), unknown: undefined }
  } catch (error) {
    if (!Array.isArray(input) || !(error instanceof LimiterError)) throw error
    const [, index = '', field = 'rules'] = /^rules\[(\d+)\]\.(.*)/.exec(error.fieldErrors[0]?.field ?? '') ?? []
    const rule: unknown = input[Number(index)]
    const known = input.flatMap((rule) => parsedOr(rule, () => parsedOr(withKnownFields(rule), () => [])))
    return { rules: known, unknown: `rule ${isFields(rule) ? rule.rule_id : '?'} has a value of ${field}` }
  }
}

function parsedOr(rule: unknown, otherwise: () => readonly Rule[]): readonly Rule[] {
  try {
    return parseRules([rule])
  } catch {
    return otherwise()
  }
}

function withKnownFields(rule: unknown): unknown {
  if (!isFields(rule)) return rule
  return Object.fromEntries(Object.entries(rule).filter(([name]) => FIELDS.includes(name)))
}
