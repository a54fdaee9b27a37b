// Domains of Envoy that rules decide about: those that a rule names in `when`, and those of --envoy-domain. Every other
// domain without a configuration is unlimited, as in envoyproxy/ratelimit: rules for other entry points, such as the
// example rules of an empty database, must not refuse the traffic of a proxy. Each such domain is logged once.

import { type Condition, conditionsOf, type Limiter } from 'sluice'
import type { Log } from '../log.ts'

const LOGGED_MAX = 100
/** Envoy sends the domains of its filters: a few. */
const CACHED_MAX = 1000

export class RuleDomains {
  readonly #limiter: Pick<Limiter, 'rules'>
  readonly #given: ReadonlySet<string>
  readonly #log: Pick<Log, 'event'>
  readonly #logged = new Set<string>()
  /** Rules that `#conditions` and `#mapped` are of. */
  #rules: Limiter['rules'] | undefined
  #conditions: readonly Condition[] = []
  readonly #mapped = new Map<string, boolean>()

  constructor(limiter: Pick<Limiter, 'rules'>, given: readonly string[], log: Pick<Log, 'event'>) {
    this.#limiter = limiter
    this.#given = new Set(given)
    this.#log = log
  }

  has(domain: string): boolean {
    if (this.#given.has('*') || this.#given.has(domain)) return true
    const { rules } = this.#limiter
    if (rules !== this.#rules) {
      this.#rules = rules
      const naming = rules.filter(({ when }) => FACTS.some((fact) => when[fact] !== undefined))
      this.#conditions = naming.flatMap(conditionsOf).filter(({ fact }) => FACTS.includes(fact))
      this.#mapped.clear()
    }
    const known = this.#mapped.get(domain)
    if (known !== undefined) return known
    const isMapped = this.#conditions.some((condition) => condition.holds({ attributes: { domain } }))
    if (this.#mapped.size < CACHED_MAX) this.#mapped.set(domain, isMapped)
    if (!isMapped) this.#logUnlimited(domain)
    return isMapped
  }

  /** Domains as the rules and the setting name them, for the log line at start. */
  names(): readonly string[] {
    const conditions = this.#limiter.rules.flatMap(({ when }) => FACTS.map((fact) => when[fact]))
    const texts = conditions.flatMap((one = []) => ('not' in one ? `not ${one.not.join(', ')}` : one))
    return [...new Set([...this.#given, ...texts])].sort()
  }

  /** Whether rules apply to domains that are not named, for the log line at start. */
  others(): 'rules' | 'unlimited' {
    return this.names().some((name) => name === '*' || name.startsWith('not ')) ? 'rules' : 'unlimited'
  }

  #logUnlimited(domain: string): void {
    if (this.#logged.has(domain) || this.#logged.size >= LOGGED_MAX) return
    this.#logged.add(domain)
    const fix = `name it in a rule (when: { domain: … }) or in --envoy-config, or give --envoy-domain for every rule`
    this.#log.event('envoy_domain_unlimited', { domain: domain.slice(0, 200), fix })
  }
}

const FACTS = ['domain', 'attributes.domain']
