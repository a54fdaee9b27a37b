// What a person sees at the start: the address, the rules in force, and a command to copy that shows them at work.

import type { Rule } from 'sluice'
import { CHECK_PATH } from '../http/routes/check.ts'
import { VERSION } from '../package-facts.ts'
import { aligned } from '../text/aligned.ts'
import { ruleRow } from '../text/rule-row.ts'

export type BannerFacts = {
  readonly address: string
  readonly store: string
  readonly rulesPlace: string
  readonly rules: readonly Rule[]
  readonly checksAreOpen: boolean
  readonly checksArePossible: boolean
  /** Made by this very start. */
  readonly firstToken: string | undefined
}

const ROWS_MAX = 20
export const NO_CHECKS = 'every check will be answered 401: away from loopback checks need a token, and there is none'
export const NO_CHECK_FIX =
  'give tokens of the role check in --tokens-file, or give --checks open in a network that you trust'

export function banner(facts: BannerFacts): string {
  const { address, store, rulesPlace, rules, checksAreOpen, checksArePossible, firstToken } = facts
  const enabled = rules.filter((rule) => rule.enabled)
  const request = JSON.stringify(sampleRequest(enabled)).replaceAll("'", "'\\''")
  const [, socket] = /^unix:(.*)$/.exec(address) ?? []
  const place = socket === undefined ? reachable(address) : `--unix-socket ${socket} http://localhost`
  const token = checksAreOpen ? '' : ' -H "authorization: Bearer $SLUICE_TOKEN"'
  return [
    `Sluice ${VERSION} listens on ${address}`,
    ...rulesLines({ store, rulesPlace, rules }),
    '',
    ...(checksArePossible ? [] : [`Warning: ${NO_CHECKS}.`, `  To fix it, ${NO_CHECK_FIX}.`, '']),
    ...(firstToken === undefined ? [] : ['Admin token, shown this once:', '', `  ${firstToken}`, '']),
    `Try it, a few times in a row${checksAreOpen ? '' : ', with a token of the role check in SLUICE_TOKEN'}:`,
    '',
    `  curl -s ${place}${CHECK_PATH} -H 'content-type: application/json'${token} -d '${request}'`,
    '',
    '',
  ].join('\n')
}

/** Where counters and rules are, and a table of the rules in force. */
export function rulesLines({
  store,
  rulesPlace,
  rules,
}: Pick<BannerFacts, 'store' | 'rulesPlace' | 'rules'>): string[] {
  const enabled = rules.filter((rule) => rule.enabled)
  const rows = [['RULE', 'LIMIT', 'COUNTED', 'WHERE'], ...enabled.slice(0, ROWS_MAX).map(ruleRow)]
  const more = enabled.length > ROWS_MAX ? [`  … and ${enabled.length - ROWS_MAX} more`] : []
  const where = `Counters: ${store}. Rules: ${rulesPlace}; changes apply within a second.`
  return [where, '', ...aligned(rows), ...more]
}

/** A request that meets the tightest rule: repeated a few times, it shows a refusal. */
function sampleRequest(rules: readonly Rule[]): Readonly<Record<string, string>> {
  const plain = rules.filter(({ mode, when, algorithm, limits }) => {
    return mode === 'enforce' && algorithm !== 'concurrency' && Object.keys(when).length === 0 && smallest(limits) > 0
  })
  const [rule] = plain.sort((a, b) => smallest(a.limits) - smallest(b.limits))
  const facts = rule === undefined ? [] : rule.scope.flatMap((fact) => Object.entries(SAMPLES[fact] ?? {}))
  return {
    client_id: 'you',
    ...Object.fromEntries(facts),
    endpoint: rule === undefined ? '/' : samplePath(rule.endpoint_pattern),
    method: rule?.method[0] ?? 'GET',
    ...(rule?.plan === undefined ? {} : { plan: rule.plan }),
  }
}

const SAMPLES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  ip: { ip_address: '203.0.113.42' },
  api_key: { api_key: 'k_demo' },
  tenant: { tenant: 'acme' },
  plan: { plan: 'free' },
}

function smallest(limits: Rule['limits']): number {
  return Math.min(...limits.map(({ limit }) => limit))
}

/** `/users/:id/**` → `/users/42/example`. */
function samplePath(pattern: string): string {
  return pattern.replace(/\*\*?/g, 'example').replace(/:\w+/g, '42')
}

/** The address to connect to: those that stand for every interface are no destination on all systems. */
export function reachable(address: string): string {
  return address.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')
}
