// The spellings of rules that are in use elsewhere, rewritten into ours before anything is checked: one rule language,
// many accents. Only names and shapes change here; whether the values make sense is for parse.ts to say.

import type { Faults } from './faults.ts'

type Fields = Record<string, unknown>

const ALIASES: Readonly<Record<string, string>> = {
  id: 'rule_id',
  http_method: 'method',
  limit_count: 'limit',
  is_active: 'enabled',
  capacity: 'burst',
  burst_capacity: 'burst',
  max_tokens: 'burst',
  refill_rate: 'rate_per_second',
}

const SECONDS_PER: Readonly<Record<string, number>> = { second: 1, minute: 60, hour: 3600, day: 86_400 }

/** How scopes and dimensions are called elsewhere. */
const SCOPE_ALIASES: Readonly<Record<string, unknown>> = {
  user: 'per_user',
  ip: 'per_ip',
  api_key: 'per_api_key',
  tenant: 'per_tenant',
  endpoint: 'per_endpoint',
  user_endpoint: ['user', 'endpoint'],
}

const ON_FAIL_ALIASES: Readonly<Record<string, string>> = {
  fail_open: 'open',
  fail_closed: 'closed',
  fail_local: 'local',
}

/** A rule whose fields have our names. Faults are named by the spelling the author used. */
export function respell(fields: Fields, faults: Faults): Fields {
  const rule: Fields = {}
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined || value === null) continue // what a database column or a JSON encoder writes for "not set"
    const canonical = ALIASES[name] ?? name
    if (canonical in rule) faults.add(name, value, `remove it: "${canonical}" is already given under another name`)
    else rule[canonical] = value
  }
  respellRate(rule, faults)
  respellMatch(rule, faults)
  respellKeyPattern(rule, faults)
  if (typeof rule.scope === 'string') rule.scope = SCOPE_ALIASES[rule.scope] ?? rule.scope
  if (typeof rule.on_fail === 'string') rule.on_fail = ON_FAIL_ALIASES[rule.on_fail] ?? rule.on_fail
  if (typeof rule.rule_id === 'number') rule.rule_id = String(rule.rule_id)
  return rule
}

/** `rate` and `per`, or `rate_per_second`: limit and window. */
function respellRate(rule: Fields, faults: Faults): void {
  const { rate, per, rate_per_second: perSecond } = rule
  delete rule.rate
  delete rule.per
  delete rule.rate_per_second
  if (rate !== undefined) {
    const seconds = per === undefined ? 1 : SECONDS_PER[String(per)]
    if (seconds === undefined) faults.add('per', per, 'use second, minute, hour or day')
    setOnce(rule, 'limit', rate, 'rate', faults)
    setOnce(rule, 'window_seconds', seconds ?? 1, 'per', faults)
  } else if (per !== undefined) faults.add('per', per, 'give "rate" too, or use limit and window_seconds')
  if (perSecond === undefined) return
  const whole = wholeRate(perSecond)
  if (whole === undefined)
    faults.add('rate_per_second', perSecond, 'give a rate above 0, or use limit and window_seconds')
  setOnce(rule, 'limit', whole?.limit ?? 1, 'rate_per_second', faults)
  setOnce(rule, 'window_seconds', whole?.seconds ?? 1, 'rate_per_second', faults)
}

/** 0.5 a second is 1 in 2 seconds: the shortest window in which a fractional rate is a whole number. */
function wholeRate(perSecond: unknown): { limit: number; seconds: number } | undefined {
  if (typeof perSecond !== 'number' || !(perSecond > 0)) return undefined
  for (let seconds = 1; seconds <= 3600; seconds += 1) {
    const limit = Math.round(perSecond * seconds)
    if (limit >= 1 && Math.abs(perSecond * seconds - limit) < 1e-9 * limit) return { limit, seconds }
  }
  return undefined
}

/** `match: { dimension, scope }`: which fact is counted, and where ("global": everywhere, else a path). */
function respellMatch(rule: Fields, faults: Faults): void {
  const { match } = rule
  if (match === undefined) return
  delete rule.match
  if (typeof match !== 'object' || match === null || Array.isArray(match)) {
    faults.add('match', match, 'give an object with "dimension" and "scope"')
    return
  }
  const { dimension, scope, ...others } = match as Fields
  for (const [name, value] of Object.entries(others)) faults.add(`match.${name}`, value, 'use only dimension and scope')
  if (dimension !== undefined) {
    const known = typeof dimension === 'string' && (dimension === 'global' || dimension in SCOPE_ALIASES)
    if (!known) faults.add('match.dimension', dimension, `use one of global, ${Object.keys(SCOPE_ALIASES).join(', ')}`)
    setOnce(rule, 'scope', known ? dimension : 'global', 'match.dimension', faults)
  }
  if (scope !== undefined && scope !== 'global') setOnce(rule, 'endpoint_pattern', scope, 'match.scope', faults)
}

/** `user:{user_id}` only repeats the scope; `endpoint:/api/search` also says where. */
function respellKeyPattern(rule: Fields, faults: Faults): void {
  const { key_pattern: keyPattern } = rule
  if (keyPattern === undefined) return
  delete rule.key_pattern
  const [, kind, rest = ''] = /^([a-z_]+)(?::(.+))?$/s.exec(String(keyPattern)) ?? []
  if (kind === undefined || (kind !== 'global' && !(kind in SCOPE_ALIASES))) {
    faults.add('key_pattern', keyPattern, 'use "global", "user:{user_id}", "ip:{ip}" or "endpoint:/path"')
    return
  }
  const scope = SCOPE_ALIASES[String(rule.scope)] ?? rule.scope
  if (scope !== undefined && scope !== (SCOPE_ALIASES[kind] ?? kind)) {
    faults.add('key_pattern', keyPattern, `make it agree with scope "${String(rule.scope)}"`)
  }
  rule.scope ??= kind
  if (rest.startsWith('/')) setOnce(rule, 'endpoint_pattern', rest, 'key_pattern', faults)
}

function setOnce(rule: Fields, name: string, value: unknown, spelling: string, faults: Faults): void {
  if (rule[name] !== undefined)
    faults.add(spelling, rule[spelling] ?? value, `remove it or "${name}": both say the same`)
  else rule[name] = value
}
