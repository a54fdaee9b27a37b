// Startup banner: address, active rules, and a command to try them.

import { hasPermits, type Rule } from 'sluice'
import { CHECK_PATH } from '../http/routes/check.ts'
import { VERSION } from '../package-facts.ts'
import { aligned } from '../text/aligned.ts'
import { ruleRow } from '../text/rule-row.ts'

export type BannerFacts = {
  readonly address: string
  /** Undefined: no gRPC. */
  readonly grpcAddress?: string | undefined
  readonly store: string
  readonly rulesLocation: string
  readonly rules: readonly Rule[]
  readonly checksAreOpen: boolean
  readonly checksArePossible: boolean
  /** Whether this node serves the dashboard. */
  readonly hasDashboard: boolean
  /** Whether there is a token for the dashboard. */
  readonly signInIsPossible: boolean
  /** Created by this start. */
  readonly firstToken: string | undefined
}

const ROWS_MAX = 20
const NO_CHECKS = 'every check gets 401: on a non-loopback address checks need a token, and this node has none'
export const NO_CHECK_FIX =
  'add a token with the role check to --tokens-file, or give --checks open in a trusted network'

export function banner(facts: BannerFacts): string {
  const { address, store, rulesLocation, rules, checksAreOpen, checksArePossible, hasDashboard, firstToken } = facts
  const { signInIsPossible } = facts
  const enabled = rules.filter((rule) => rule.enabled)
  const request = JSON.stringify(sampleRequest(enabled)).replaceAll("'", "'\\''")
  const [, socket] = /^unix:(.*)$/.exec(address) ?? []
  const target = socket === undefined ? reachable(address) : `--unix-socket ${socket} http://localhost`
  const token = checksAreOpen ? '' : ' -H "authorization: Bearer $SLUICE_TOKEN"'
  const signIn = signInIsPossible ? 'sign in with a token' : 'start with --admin-token or --tokens-file to sign in'
  return [
    `Sluice ${VERSION} listens on ${address}`,
    ...(facts.grpcAddress === undefined ? [] : [`gRPC listens on ${facts.grpcAddress}`]),
    ...rulesLines({ store, rulesLocation, rules }),
    ...(hasDashboard && socket === undefined ? ['', `Dashboard: ${target}/ (${signIn})`] : []),
    '',
    ...(checksArePossible ? [] : [`Warning: ${NO_CHECKS}.`, `  To fix it, ${NO_CHECK_FIX}.`, '']),
    ...(firstToken === undefined ? [] : ['Admin token, shown only once:', '', `  ${firstToken}`, '']),
    `Try it, a few times in a row${checksAreOpen ? '' : ', with a token that has the role check in SLUICE_TOKEN'}:`,
    '',
    `  curl -s ${target}${CHECK_PATH} -H 'content-type: application/json'${token} -d '${request}'`,
    '',
    '',
  ].join('\n')
}

/** Location of counters and rules, and a table of the active rules. */
export function rulesLines({
  store,
  rulesLocation,
  rules,
}: Pick<BannerFacts, 'store' | 'rulesLocation' | 'rules'>): string[] {
  const enabled = rules.filter((rule) => rule.enabled)
  const rows = [['RULE', 'LIMIT', 'SCOPE', 'ENDPOINT'], ...enabled.slice(0, ROWS_MAX).map(ruleRow)]
  const more = enabled.length > ROWS_MAX ? [`  … and ${enabled.length - ROWS_MAX} more`] : []
  const where = `Counters: ${store}. Rules: ${rulesLocation}; changes apply within a second.`
  return [where, '', ...aligned(rows), ...more]
}

/** Request that matches the tightest rule: a few repetitions show a refusal. */
function sampleRequest(rules: readonly Rule[]): Readonly<Record<string, string>> {
  const plain = rules.filter(({ mode, when, algorithm, limits }) => {
    return mode === 'enforce' && !hasPermits({ algorithm }) && Object.keys(when).length === 0 && smallest(limits) > 0
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

/** Address to connect to: not all systems accept a wildcard address as a destination. */
export function reachable(address: string): string {
  return address.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:')
}
