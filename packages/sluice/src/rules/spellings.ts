// Translates the field names and shapes of other rule formats into ours before validation. Values are not checked here;
// parse.ts does that.

import { show } from '../errors.ts'
import type { FieldErrors } from './field-errors.ts'
import { isFields } from './fields.ts'

type Fields = Record<string, unknown>

/** A rule with our field names, and the original names of the fields that were renamed. */
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

/** Names of scopes and dimensions in other formats. */
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

/** Errors found here name fields as in the input; `spellings` does the same for errors found later. */
export function respell(given: Readonly<Fields>, errors: FieldErrors): Respelled {
  // Without a prototype, `__proto__` is an ordinary unknown field.
  const rule: Respelled = { fields: Object.create(null) as Fields, spellings: new Map() }
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null) continue // database columns and JSON encoders write null for "not set"
    setOnce(rule, ALIASES.get(name) ?? name, value, name, errors)
  }
  respellRate(rule, errors)
  respellPerSecond(rule, errors)
  respellMatch(rule, errors)
  respellKeyPattern(rule, errors)
  const { fields } = rule
  fields.scope = SCOPE_ALIASES.get(fields.scope) ?? fields.scope
  fields.on_fail = ON_FAIL_ALIASES.get(fields.on_fail) ?? fields.on_fail
  if (typeof fields.rule_id === 'number') fields.rule_id = String(fields.rule_id)
  return rule
}

/** `rate` and `per`: limit and window. Without a window, a rate is per second. */
function respellRate(rule: Respelled, errors: FieldErrors): void {
  const rate = remove(rule.fields, 'rate')
  const per = remove(rule.fields, 'per')
  if (rate !== undefined) setOnce(rule, 'limit', rate, 'rate', errors)
  if (per !== undefined) {
    const seconds = SECONDS_PER.get(per)
    if (seconds === undefined) errors.add('per', per, 'use second, minute, hour or day')
    if (seconds !== undefined) setOnce(rule, 'window_seconds', seconds, 'per', errors, per)
  }
  const timed = rule.fields.window_seconds !== undefined || rule.fields.window !== undefined
  if (!timed && (rate !== undefined || per !== undefined)) rule.fields.window_seconds = 1
}

/** `rate_per_second`: limit and window. */
function respellPerSecond(rule: Respelled, errors: FieldErrors): void {
  const { fields, spellings } = rule
  const spelling = spellings.get('rate_per_second') ?? 'rate_per_second'
  const perSecond = remove(fields, 'rate_per_second')
  if (perSecond === undefined) return
  const whole = wholeRate(perSecond)
  const other = ['limit', 'window_seconds', 'window'].find((name) => fields[name] !== undefined)
  if (other !== undefined)
    errors.add(spelling, perSecond, `remove it or "${spellings.get(other) ?? other}": both set the same field`)
  else if (whole === undefined)
    errors.add(
      spelling,
      perSecond,
      'give a rate above 0, or use limit and window_seconds, such as 1 and 3 for one unit per 3 s',
    )
  if (fields.limit === undefined) spellings.set('limit', spelling)
  fields.limit ??= whole?.limit ?? 1
  if (fields.window === undefined) fields.window_seconds ??= whole?.seconds ?? 1
}

/** The shortest window in which a fractional rate is an integer: 0.5 per second is 1 in 2 seconds. */
function wholeRate(perSecond: unknown): { limit: number; seconds: number } | undefined {
  if (typeof perSecond !== 'number' || !(perSecond > 0)) return undefined
  for (let seconds = 1; seconds <= 3600; seconds += 1) {
    const limit = Math.round(perSecond * seconds)
    if (limit >= 1 && Math.abs(perSecond * seconds - limit) < 1e-9 * limit) return { limit, seconds }
  }
  return undefined
}

/** `match: { dimension, scope }`: the fact that forms the key, and the path ("global": every path). */
function respellMatch(rule: Respelled, errors: FieldErrors): void {
  const match = remove(rule.fields, 'match')
  if (match === undefined) return
  if (!isFields(match)) {
    errors.add('match', match, 'give an object with "dimension" and "scope"')
    return
  }
  const { dimension, scope, ...others } = match
  for (const [name, value] of Object.entries(others)) errors.add(`match.${name}`, value, 'use only dimension and scope')
  if (dimension !== undefined && !SCOPE_ALIASES.has(dimension))
    errors.add('match.dimension', dimension, `use one of ${[...SCOPE_ALIASES.keys()].join(', ')}`)
  else if (dimension !== undefined) setOnce(rule, 'scope', dimension, 'match.dimension', errors)
  if (scope !== undefined && scope !== 'global') setOnce(rule, 'endpoint_pattern', scope, 'match.scope', errors)
}

/** `user:{user_id}` is a scope; `endpoint:/api/search` is a scope and a path. */
function respellKeyPattern(rule: Respelled, errors: FieldErrors): void {
  const { fields } = rule
  const keyPattern = remove(fields, 'key_pattern')
  if (keyPattern === undefined) return
  const text = typeof keyPattern === 'string' ? keyPattern : ''
  // Rejects a fixed key (`user:alice`): without its value, the rule would apply to every user.
  const [, kind, path] = /^([a-z_]+)(?::(?:\{\w+\}|(\/.*)))?$/s.exec(text) ?? []
  const scope = SCOPE_ALIASES.get(kind)
  if (scope === undefined) {
    errors.add('key_pattern', keyPattern, 'use "global", "user:{user_id}", "ip:{ip}" or "endpoint:/path"')
    return
  }
  if (fields.scope === undefined) setOnce(rule, 'scope', kind, 'key_pattern', errors)
  else if (scope !== (SCOPE_ALIASES.get(fields.scope) ?? fields.scope))
    errors.add('key_pattern', keyPattern, `make it match scope ${show(fields.scope)}`)
  if (path !== undefined) setOnce(rule, 'endpoint_pattern', path, 'key_pattern', errors)
}

function remove(fields: Fields, name: string): unknown {
  const value = fields[name]
  delete fields[name]
  return value
}

/** `written` is the value in the input, if it differs from the value to set. */
function setOnce(
  { fields, spellings }: Respelled,
  name: string,
  value: unknown,
  spelling: string,
  errors: FieldErrors,
  written: unknown = value,
): void {
  if (fields[name] !== undefined) {
    errors.add(spelling, written, `remove it or "${spellings.get(name) ?? name}": both set the same field`)
    return
  }
  fields[name] = value
  if (spelling !== name) spellings.set(name, spelling)
}
