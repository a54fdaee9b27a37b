// State of the service that a remote node follows: rules, and conditions under which only the service can decide.

import { canonicalAddress } from '../canonical/address.ts'
import { readerOf } from '../rules/condition.ts'
import { limitNames, type ScopedName } from '../rules/limit-names.ts'
import { parseRules } from '../rules/parse.ts'
import type { Rule } from '../rules/rule.ts'
import type { Subject } from '../subject.ts'
import { exceptedKeyTest, type NodeState } from './state-message.ts'

/** Facts whose value in a key depends on the rule, so that a request does not tell whether it has an excepted key. */
const RULE_FACTS: readonly string[] = ['', 'endpoint', 'method']

export class NodeRules {
  readonly state: NodeState
  readonly rules: readonly Rule[]
  readonly #names: ReadonlyMap<string, ScopedName>
  readonly #isExcepted: (fact: string, owner: string) => boolean
  readonly #decidesAll: boolean

  constructor(state: NodeState) {
    this.state = state
    this.rules = parseRules(JSON.parse(state.rules))
    this.#names = limitNames(this.rules)
    this.#isExcepted = exceptedKeyTest(state.excepted)
    this.#decidesAll = state.decidesAll || state.excepted.facts.some((fact) => RULE_FACTS.includes(fact))
  }

  get stores(): readonly string[] {
    return [...new Set(this.rules.map(({ store }) => store))]
  }

  nameOf(limitId: string): ScopedName | undefined {
    return this.#names.get(limitId)
  }

  /** Whether only the service can decide: keys with overrides or signals, rollouts, global factor. */
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
