// Rules may look at headers (`when: { header.x-client: mobile }`). A middleware hands over those headers that the rules
// in force name, and no others: a rule never fails to match only because nobody passed the header on.

import type { Limiter } from '../limiter.ts'
import { ATTRIBUTE, type Rule } from '../rules/rule.ts'
import type { Subject } from '../subject.ts'
import type { HttpRequest } from './verdict.ts'

const HEADER = 'header.'

/** Reads the rule set again only when it has changed. */
export function headerFacts(limiter: Limiter): (request: HttpRequest) => Subject['attributes'] {
  let rules: readonly Rule[] = []
  let names: readonly string[] = []
  return (request) => {
    if (rules !== limiter.rules) {
      rules = limiter.rules
      names = headerNames(rules)
    }
    return names.length === 0 ? undefined : attributesOf(request, names)
  }
}

/** Attributes of the form `header.x-client`, in conditions, scopes and costs. */
function headerNames(rules: readonly Rule[]): readonly string[] {
  const facts = rules.flatMap(({ when, scope, cost }) => [...Object.keys(when), ...scope, String(cost)])
  const attributes = facts.map((fact) => (fact.startsWith(ATTRIBUTE) ? fact.slice(ATTRIBUTE.length) : fact))
  return [...new Set(attributes.filter((attribute) => attribute.startsWith(HEADER)))]
}

function attributesOf({ header }: HttpRequest, names: readonly string[]): Record<string, string> {
  const attributes: Record<string, string> = {}
  for (const name of names) {
    const value = header(name.slice(HEADER.length).toLowerCase())
    if (value !== undefined) attributes[name] = value
  }
  return attributes
}
