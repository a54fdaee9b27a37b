// Header attributes for rules (`when: { header.x-client: mobile }`): reads exactly the headers that the active rules
// name, so a rule never misses a header that the application did not pass on.

import type { Limiter } from '../limiter-api.ts'
import { ATTRIBUTE, type Rule } from '../rules/rule.ts'
import type { Subject } from '../subject.ts'
import type { HttpRequest } from './request.ts'

const HEADER = 'header.'

/** Rereads the rules only after they changed. */
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
