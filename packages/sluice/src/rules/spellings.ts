// The spellings of rules that are in use elsewhere, rewritten into ours before anything is checked: one rule language,
// many accents. Only names and shapes change here; whether the values make sense is for parse.ts to say.

import { show } from '../errors.ts'
import type { Faults } from './faults.ts'
import { isFields } from './fields.ts'

type Fields = Record<string, unknown>

/** A rule whose fields have our names, and what its author called those of them that were called otherwise. */
export type Respelled = { readonly fields: Fields; readonly spellings: Map<string, string> }

const ALIASES: ReadonlyMap<string, string> = new Map([
  ['id', 'rule_id'],
  ['http_method', 'method'],
  ['limit_count', 'limit'],
  ['is_active', 'enabled'],
  ['capacity', 'burst'],
  ['burst_capacity', 'burst'],
  ['max_tokens', 'burst'],
  ['refill_rate', 'rate_per_second'],
])

const SECONDS_PER: ReadonlyMap<unknown, number> = new Map([
  ['second', 1],
  ['minute', 60],
  ['hour', 3600],
  ['day', 86_400],
])

/** How scopes and dimensions are called elsewhere. */
const SCOPE_ALIASES: ReadonlyMap<unknown, string | readonly string[]> = new Map<string, string | readonly string[]>([
  ['global', 'global'],
  ['user', 'per_user'],
  ['ip', 'per_ip'],
  ['api_key', 'per_api_key'],
  ['tenant', 'per_tenant'],
  ['endpoint', 'per_endpoint'],
  ['user_endpoint', ['user', 'endpoint']],
])

const ON_FAIL_ALIASES: ReadonlyMap<unknown, string> = new Map([
  ['fail_open', 'open'],
  ['fail_closed', 'closed'],
  ['fail_local', 'local'],
])

/** Faults found here, and with `spellings` those found later, are named as the author named the field. */
export function respell(given: Readonly<Fields>, faults: Faults): Respelled {
  // Without a prototype, a field called `__proto__` is a field like any other: unknown.
  const rule: Respelled = { fields: Object.create(null) as Fields, spellings: new Map() }
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null) continue // what a database column or a JSON encoder writes for "not set"
    setOnce(rule, ALIASES.get(name) ?? name, value, name, faults)
  }
  respellRate(rule, faults)
  respellPerSecond(rule, faults)
  respellMatch(rule, faults)
  respellKeyPattern(rule, faults)
  const { fields } = rule
  fields.scope = SCOPE_ALIASES.get(fields.scope) ?? fields.scope
  fields.on_fail = ON_FAIL_ALIASES.get(fields.on_fail) ?? fields.on_fail
  if (typeof fields.rule_id === 'number') fields.rule_id = String(fields.rule_id)
  return rule
}

/** `rate` and `per`: limit and window. A rate is per second unless something says otherwise. */
function respellRate(rule: Respelled, faults: Faults): void {
  const rate = taken(rule.fields, 'rate')
  const per = taken(rule.fields, 'per')
  if (rate !== undefined) setOnce(rule, 'limit', rate, 'rate', faults)
  if (per !== undefined) {
    const seconds = SECONDS_PER.get(per)
    if (seconds === undefined) faults.add('per', per, 'use second, minute, hour or day')
    if (seconds !== undefined) setOnce(rule, 'window_seconds', seconds, 'per', faults, per)
  }
  const timed = rule.fields.window_seconds !== undefined || rule.fields.window !== undefined
  if (!timed && (rate !== undefined || per !== undefined)) rule.fields.window_seconds = 1
}

/** `rate_per_second`: limit and window. */
function respellPerSecond(rule: Respelled, faults: Faults): void {
  const { fields, spellings } = rule
  const spelling = spellings.get('rate_per_second') ?? 'rate_per_second'
  const perSecond = taken(fields, 'rate_per_second')
  if (perSecond === undefined) return
  const whole = wholeRate(perSecond)
  const other = ['limit', 'window_seconds', 'window'].find((name) => fields[name] !== undefined)
  if (other !== undefined)
    faults.add(spelling, perSecond, `remove it or "${spellings.get(other) ?? other}": both say the same`)
  else if (whole === undefined)
    faults.add(spelling, perSecond, 'give a rate above 0, or use limit and window_seconds: 1 in 3 s is limit 1, 3')
  if (fields.limit === undefined) spellings.set('limit', spelling)
  fields.limit ??= whole?.limit ?? 1
  if (fields.window === undefined) fields.window_seconds ??= whole?.seconds ?? 1
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
function respellMatch(rule: Respelled, faults: Faults): void {
  const match = taken(rule.fields, 'match')
  if (match === undefined) return
  if (!isFields(match)) {
    faults.add('match', match, 'give an object with "dimension" and "scope"')
    return
  }
  const { dimension, scope, ...others } = match
  for (const [name, value] of Object.entries(others)) faults.add(`match.${name}`, value, 'use only dimension and scope')
  if (dimension !== undefined && !SCOPE_ALIASES.has(dimension))
    faults.add('match.dimension', dimension, `use one of ${[...SCOPE_ALIASES.keys()].join(', ')}`)
  else if (dimension !== undefined) setOnce(rule, 'scope', dimension, 'match.dimension', faults)
  if (scope !== undefined && scope !== 'global') setOnce(rule, 'endpoint_pattern', scope, 'match.scope', faults)
}

/** `user:{user_id}` only repeats the scope; `endpoint:/api/search` also says where. */
function respellKeyPattern(rule: Respelled, faults: Faults): void {
  const { fields } = rule
  const keyPattern = taken(fields, 'key_pattern')
  if (keyPattern === undefined) return
  const text = typeof keyPattern === 'string' ? keyPattern : ''
  // A key of its own (`user:alice`) would be a rule for everybody if its end were dropped: it is not understood.
  const [, kind, path] = /^([a-z_]+)(?::(?:\{\w+\}|(\/.*)))?$/s.exec(text) ?? []
  const scope = SCOPE_ALIASES.get(kind)
  if (scope === undefined) {
    faults.add('key_pattern', keyPattern, 'use "global", "user:{user_id}", "ip:{ip}" or "endpoint:/path"')
    return
  }
  if (fields.scope === undefined) setOnce(rule, 'scope', kind, 'key_pattern', faults)
  else if (scope !== (SCOPE_ALIASES.get(fields.scope) ?? fields.scope))
    faults.add('key_pattern', keyPattern, `make it agree with scope ${show(fields.scope)}`)
  if (path !== undefined) setOnce(rule, 'endpoint_pattern', path, 'key_pattern', faults)
}

function taken(fields: Fields, name: string): unknown {
  const value = fields[name]
  delete fields[name]
  return value
}

/** `written` is what the author wrote, where that is not the value that is set. */
function setOnce(
  { fields, spellings }: Respelled,
  name: string,
  value: unknown,
  spelling: string,
  faults: Faults,
  written: unknown = value,
): void {
  if (fields[name] !== undefined) {
    faults.add(spelling, written, `remove it or "${spellings.get(name) ?? name}": both say the same`)
    return
  }
  fields[name] = value
  if (spelling !== name) spellings.set(name, spelling)
}
