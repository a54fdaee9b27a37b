import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LimiterError } from '../errors.ts'
import { parseRules, RULES_MAX } from './parse.ts'

type Fields = Record<string, unknown>
const APPROXIMATE = { consistency: 'approximate' }
const PER_IP = { scope: 'per_ip' }
const FACTOR = { on_signal: { spam: { factor: 1 } } }

/**
 * Invalid fields, the reported field and fix, the corrected fields, and the reported value if it is not that of the
 * field.
 */
type Mistake = [invalid: Fields, field: string, fix: string | RegExp, corrected: Fields, value?: unknown]

/** A valid rule; null removes a field. */
const BASE = { rule_id: 'a', limit: 10, window_seconds: 60 }
const NO_LIMIT = { limit: null, window_seconds: null }
const LIMIT = { limit: 1, window_seconds: 1 }
const WHOLE = 'give a whole number from'

const MISTAKES: Mistake[] = [
  [{ rule_id: null }, 'rule_id', 'give 1 to 64 characters', { rule_id: 'a' }, undefined],
  [{ rule_id: '' }, 'rule_id', 'give 1 to 64 characters', { rule_id: 'a' }],
  [{ rule_id: 'Messages' }, 'rule_id', 'characters of a-z, 0-9', { rule_id: 'messages' }],
  [{ rule_id: 'x'.repeat(65) }, 'rule_id', 'give 1 to 64 characters', { rule_id: 'x'.repeat(64) }],
  [{ rule_id: '{a}' }, 'rule_id', 'characters of a-z, 0-9', { rule_id: 'a' }],
  [{ rule_id: 'a\r\n' }, 'rule_id', 'characters of a-z, 0-9', { rule_id: 'a' }],
  [{ rule_id: 'a\0' }, 'rule_id', 'characters of a-z, 0-9', { rule_id: 'a' }],
  [{ rule_id: true }, 'rule_id', 'characters of a-z, 0-9', { rule_id: 7 }],

  [{ mehtod: 'GET' }, 'mehtod', 'unknown field; did you mean "method"?', { mehtod: null, method: 'GET' }],
  [{ colour: 'red' }, 'colour', 'unknown field; remove it', { colour: null }],
  [{ constructor: 1 }, 'constructor', 'unknown field; remove it', { constructor: null }],
  [{ ['__proto__']: 1 }, '__proto__', 'unknown field; remove it', { ['__proto__']: null }],
  [{ name: '' }, 'name', 'give 1 to 255 characters', { name: 'A' }],
  [{ name: 'a\nb' }, 'name', 'without line breaks', { name: 'a b' }],
  [{ description: 'x'.repeat(4097) }, 'description', 'give 1 to 4096', { description: 'x'.repeat(4096) }],
  [{ created_at: 'yesterday' }, 'created_at', 'give a time such as "2030-01-31', { created_at: '2030-01-31' }],
  [{ updated_at: 1_700_000_000 }, 'updated_at', 'give a time such as', { updated_at: '2030-01-31T00:00:00Z' }],
  [{ expires_at: 'rule 7' }, 'expires_at', 'give a time such as', { expires_at: '2030-01-31T00:00:00Z' }],
  [{ version: -1 }, 'version', WHOLE, { version: 0 }],
  [{ version: 1.5 }, 'version', WHOLE, { version: 2 }],

  [{ endpoint_pattern: 'api/x' }, 'endpoint_pattern', 'start it with "/": "/api/x"', { endpoint_pattern: '/api/x' }],
  [{ endpoint_pattern: '' }, 'endpoint_pattern', 'give a path', { endpoint_pattern: '/' }],
  [{ endpoint_pattern: 5 }, 'endpoint_pattern', 'give a path', { endpoint_pattern: '/5' }],
  [{ endpoint_pattern: '/a//b' }, 'endpoint_pattern', 'write "/a/b"', { endpoint_pattern: '/a/b' }],
  [{ endpoint_pattern: '/a/' }, 'endpoint_pattern', 'write "/a"', { endpoint_pattern: '/a' }],
  [{ endpoint_pattern: '/a?b=c' }, 'endpoint_pattern', 'write "/a"', { endpoint_pattern: '/a' }],
  [{ endpoint_pattern: '/a/../b' }, 'endpoint_pattern', 'write "/b"', { endpoint_pattern: '/b' }],
  [{ endpoint_pattern: '/a b' }, 'endpoint_pattern', 'write "/a%20b"', { endpoint_pattern: '/a%20b' }],
  [{ endpoint_pattern: '/u/{id}' }, 'endpoint_pattern', 'a parameter is written ":id"', { endpoint_pattern: '/u/:id' }],
  [{ endpoint_pattern: '/**/b' }, 'endpoint_pattern', 'may only be the last', { endpoint_pattern: '/b/**' }],
  [
    { endpoint_pattern: '/a*' },
    'endpoint_pattern',
    '"*" stands for a whole segment, not for part of one as in "a*"; write "/*"',
    { endpoint_pattern: '/*' },
  ],
  [{ endpoint_pattern: '/a/:' }, 'endpoint_pattern', 'as in ":id"', { endpoint_pattern: '/a/:id' }],
  [{ endpoint_pattern: `/${'a'.repeat(500)}` }, 'endpoint_pattern', '1 to 500', { endpoint_pattern: '/a' }],
  [{ method: 'GTE' }, 'method', 'unknown method; did you mean "GET"?', { method: 'GET' }],
  [{ method: 'everything' }, 'method', 'use GET, HEAD', { method: '*' }],
  [{ method: ['GET', 'PSOT'] }, 'method', 'did you mean "POST"?', { method: ['GET', 'POST'] }, 'PSOT'],
  [{ method: 5 }, 'method', 'use GET, HEAD', { method: [] }],
  [{ plan: '' }, 'plan', 'give 1 to 255 characters', { plan: 'free' }],
  [{ plan: ['free', 'pro'] }, 'plan', 'give 1 to 255 characters', { plan: null, when: { plan: ['free', 'pro'] } }],

  [{ when: 'mobile' }, 'when', 'give an object of fact: value', { when: { client: 'mobile' } }],
  [{ when: { client: '' } }, 'when.client', 'give a string', { when: { client: '*' } }],
  [{ when: { client: null } }, 'when.client', '{ not: … }', { when: { client: { not: '*' } } }],
  [{ when: { client: [] } }, 'when.client', 'give 1 to 10000 values', { when: {} }],
  [{ when: { client: 'a*b' } }, 'when.client', '"*" may only be the last', { when: { client: 'a*' } }],
  [{ when: { client: { nto: 'a' } } }, 'when.client', '{ not: … }', { when: { client: { not: 'a' } } }],
  [{ when: { ip: '10.0.0' } }, 'when.ip', 'a CIDR such as', { when: { ip: '10.0.0.0/24' } }],
  [{ when: { ip: { not: '10.0.0.0/33' } } }, 'when.ip', 'a CIDR', { when: { ip: '10.0.0.0/8' } }, '10.0.0.0/33'],
  [{ when: { method: 'GTE' } }, 'when.method', 'unknown method; use GET', { when: { method: 'get' } }],
  [{ when: { path: '/a/' } }, 'when.path', 'write "/a"', { when: { path: '/a' } }],
  [{ when: { endpoint: 'a' } }, 'when.endpoint', 'write "/a"', { when: { endpoint: '/a' } }],
  [{ when: { '': 'a' } }, 'when', 'name a fact', { when: { a: 'a' } }, 'a'],
  [{ when: { ['__proto__']: 'x' } }, 'when.__proto__', 'no attribute can be called', { when: { proto: 'x' } }],
  [
    { when: { 'attributes.__proto__': { not: 'x' } } },
    ...(['when.attributes.__proto__', 'choose another name', { when: {} }, { not: 'x' }] as const),
  ],
  [{ when: conditions(33) }, 'when', 'give at most 32 conditions', { when: conditions(32) }, 33],

  [{ scope: 'per_usr' }, 'scope', 'did you mean "per_user"?', { scope: 'per_user' }],
  [{ scope: 'session' }, 'scope', 'use global, per_ip', { scope: 'attributes.session' }],
  [{ scope: 'constructor' }, 'scope', 'use global, per_ip', { scope: 'global' }],
  [{ scope: '__proto__' }, 'scope', 'use global, per_ip', { scope: 'global' }],
  [{ scope: 'attributes.__proto__' }, 'scope', 'no attribute can be called', { scope: 'attributes.proto' }],
  [
    { scope: ['user', 'attributes.__proto__'] },
    ...(['scope', 'choose another name', { scope: ['user'] }, 'attributes.__proto__'] as const),
  ],
  [{ cost: '__proto__' }, 'cost', 'no attribute can be called', { cost: 'constructor' }],
  [{ cost: 'attributes.__proto__' }, 'cost', 'no attribute can be called', { cost: 'attributes.prototype' }],
  [{ scope: 5 }, 'scope', 'a list such as [user, endpoint]', { scope: ['user', 'endpoint'] }],
  [{ scope: ['user', 'session'] }, 'scope', '"attributes.<name>"', { scope: ['attributes.session'] }, 'session'],
  [{ scope: ['per_user'] }, 'scope', 'did you mean "user"? use ip, user', { scope: ['user'] }, 'per_user'],
  [{ on_missing: 'refus' }, 'on_missing', 'did you mean "refuse"?', { on_missing: 'refuse' }],
  [{ on_missing: 'ignore' }, 'on_missing', 'use one of skip, refuse, by_ip', { on_missing: 'skip' }],

  [{ algorithm: 'token-bucket' }, 'algorithm', 'did you mean "token_bucket"?', { algorithm: 'token_bucket' }],
  [{ algorithm: 'gcra' }, 'algorithm', 'use one of token_bucket', { algorithm: 'token_bucket' }],
  [{ limit: null }, 'limit', 'give the number of units per window', { limit: 5 }, undefined],
  [{ limit: '100' }, 'limit', WHOLE, { limit: 100 }],
  [{ limit: '10/s' }, 'limit', 'in "window": limit: 10, window: 1s', { limit: 10 }],
  [{ limit: '5 / minute' }, 'limit', 'limit: 5, window: 1m', { limit: 5 }],
  [{ limit: -1 }, 'limit', WHOLE, { limit: 0 }],
  [{ limit: 1.5 }, 'limit', WHOLE, { limit: 3, window_seconds: 120 }],
  [{ limit: Number.NaN }, 'limit', WHOLE, { limit: 1 }],
  [{ limit: 2 ** 53 }, 'limit', WHOLE, { limit: 1e12 }],
  [{ limit: 999_999_999_989, window: '366d', window_seconds: null }, 'limit', 'lower the limit', { limit: 1000 }],
  [{ limit: 1001, algorithm: 'sliding_window_log' }, 'limit', 'use sliding_window', { algorithm: 'sliding_window' }],
  [{ limit: 1001, algorithm: 'concurrency' }, 'limit', 'give at most 1000', { limit: 1000 }],
  [{ limit: 2 ** 26, algorithm: 'sliding_window' }, 'limit', 'use token_bucket', { algorithm: 'token_bucket' }],
  [{ window_seconds: null }, 'window_seconds', 'the length of the window', { window_seconds: 1 }, undefined],
  [{ window_seconds: 0 }, 'window_seconds', 'give seconds from 0.001', { window_seconds: 0.001 }],
  [{ window_seconds: -1 }, 'window_seconds', 'give seconds from 0.001', { window_seconds: 1 }],
  [{ window_seconds: '60' }, 'window_seconds', 'give seconds', { window_seconds: 60 }],
  [{ window_seconds: 0.0015 }, 'window_seconds', 'in whole milliseconds', { window_seconds: 0.002 }],
  [{ window_seconds: 31_622_401 }, 'window_seconds', 'to 31622400 (366 days)', { window_seconds: 31_622_400 }],
  [{ window: '1m' }, 'window', 'remove it or "window_seconds"', { window: null }],
  [{ window: '0s', window_seconds: null }, 'window', 'from 1ms', { window: '1ms' }],
  [{ window: '367d', window_seconds: null }, 'window', 'to 366d', { window: '366d' }],
  [{ window: '1 minute', window_seconds: null }, 'window', '"1m"', { window: '1m' }],
  [{ window: 60, window_seconds: null }, 'window', 'a unit: "60s" for seconds, "60ms"', { window: '60s' }],
  [{ burst: 0 }, 'burst', `${WHOLE} 1`, { burst: 1 }],
  [{ burst: 0.5 }, 'burst', `${WHOLE} 1`, { burst: 1 }],
  [{ burst: 5, algorithm: 'fixed_window' }, 'burst', 'remove it: fixed_window has no burst', { burst: null }],
  [{ burst: 5, limit: 'unlimited' }, 'burst', 'remove it: with limit "unlimited"', { burst: null }],
  [{ limit: 'unlimited', limits: [LIMIT] }, 'limits', 'remove it: with limit "unlimited"', { limits: null }],

  [{ ...NO_LIMIT, limits: 5 }, 'limits', 'give a list', { limits: [LIMIT] }],
  [{ ...NO_LIMIT, limits: tiers(17) }, 'limits', 'at most 16', { limits: tiers(16) }],
  [{ limits: [LIMIT], window_seconds: null }, 'limit', 'put it inside "limits"', { limit: null }, 10],
  [{ ...NO_LIMIT, limits: [null] }, 'limits[0]', 'give an object with limit', { limits: [LIMIT] }, null],
  [{ ...NO_LIMIT, limits: [[5, 60]] }, 'limits[0]', 'give an object with limit', { limits: [LIMIT] }, [5, 60]],
  [{ ...NO_LIMIT, limits: [{ ...LIMIT, per: 1 }] }, 'limits[0].per', 'unknown field', { limits: [LIMIT] }, 1],
  [{ ...NO_LIMIT, limits: [{ limit: 5 }] }, 'limits[0].window_seconds', 'the length', { limits: [LIMIT] }, undefined],
  [{ ...NO_LIMIT, limits: [{ ...LIMIT, name: 'A' }] }, 'limits[0].name', '1 to 32', { limits: [LIMIT] }, 'A'],
  [{ ...NO_LIMIT, limits: [LIMIT, LIMIT] }, 'limits[1].name', 'choose another', { limits: [LIMIT] }, '1s'],

  [{ by_plan: [] }, 'by_plan', 'give an object of plan', { by_plan: {} }],
  [{ by_plan: { pro: 5 } }, 'by_plan.pro', 'give { limit, burst', { by_plan: { pro: { limit: 5 } } }],
  [{ by_plan: { pro: { limt: 5 } } }, 'by_plan.pro.limt', 'use only limit', { by_plan: { pro: { limit: 5 } } }],
  [{ by_plan: { pro: { limit: -1 } } }, 'by_plan.pro.limit', WHOLE, { by_plan: { pro: { limit: 0 } } }],
  [{ by_plan: { pro: { burst: 0 } } }, 'by_plan.pro.burst', WHOLE, { by_plan: { pro: { burst: 1 } } }],
  [
    { by_plan: { '': 'unlimited' } },
    'by_plan.',
    'give the plan a name',
    { by_plan: { pro: 'unlimited' } },
    'unlimited',
  ],
  [{ window_seconds: 0, by_plan: { pro: { limit: 5 } } }, 'window_seconds', 'give seconds', { window_seconds: 1 }],
  [{ ...NO_LIMIT, limits: [null], by_plan: { pro: { limit: 5 } } }, 'limits[0]', 'give', { limits: [LIMIT] }, null],

  [{ cost: 0 }, 'cost', WHOLE, { cost: 1 }],
  [{ cost: -1 }, 'cost', WHOLE, { cost: 1 }],
  [{ cost: 1e9 + 1 }, 'cost', WHOLE, { cost: 1e9 }],
  [{ cost: '' }, 'cost', 'give 1 to 255 characters', { cost: 'size' }],
  [{ group: '' }, 'group', 'give 1 to 255 characters', { group: 'uploads' }],
  [{ priority: 1.5 }, 'priority', WHOLE, { priority: 15 }],
  [{ priority: 'high' }, 'priority', WHOLE, { priority: 100 }],
  [{ consistency: 'lease' }, 'consistency', 'did you mean "leased"?', { consistency: 'leased' }],
  [{ consistency: 'leased', algorithm: 'concurrency' }, 'consistency', 'use strict', { consistency: 'strict' }],
  [{ consistency: 'local', algorithm: 'concurrency' }, 'consistency', 'use strict', { consistency: 'strict' }],
  [{ consistency: 'approximate', algorithm: 'leaky_bucket' }, 'consistency', 'use strict', { consistency: 'strict' }],
  [{ ...APPROXIMATE, approximate: 5 }, 'approximate', 'give an object with sync_ms', { approximate: {} }],
  [{ ...APPROXIMATE, approximate: { sync: 5 } }, 'approximate.sync', 'unknown field', { approximate: { sync_ms: 50 } }],
  [{ ...APPROXIMATE, approximate: { sync_ms: 5 } }, 'approximate.sync_ms', WHOLE, { approximate: { sync_ms: 20 } }],
  [
    { ...APPROXIMATE, approximate: { max_unsynced: 0 } },
    'approximate.max_unsynced',
    WHOLE,
    { approximate: { max_unsynced: 1 } },
  ],
  [{ approximate: { sync_ms: 50 } }, 'approximate', 'use consistency "approximate"', APPROXIMATE],
  [{ ...APPROXIMATE, lease: { ttl_ms: 5 } }, 'lease', 'remove it', { lease: undefined }],
  [{ lease: 5 }, 'lease', 'give an object with max_units', { lease: { max_units: 5 } }],
  [{ lease: { ttl: 5 } }, 'lease.ttl', 'unknown field; remove it', { lease: { ttl_ms: 5 } }],
  [{ lease: { max_share: 2 } }, 'lease.max_share', 'above 0 and at most 1', { lease: { max_share: 1 } }],
  [{ lease: { max_units: 0 } }, 'lease.max_units', WHOLE, { lease: { max_units: 1 } }],
  [{ lease: { ttl_ms: '1s' } }, 'lease.ttl_ms', WHOLE, { lease: { ttl_ms: 1000 } }],
  [{ on_signal: 'spam' }, 'on_signal', 'give kinds of signals', { on_signal: undefined }],
  [{ on_signal: {} }, 'on_signal', 'give 1 to 32 kinds', { on_signal: undefined }],
  [
    { on_signal: { spam: { factor: 0.5 } }, scope: 'global' },
    'on_signal',
    'add a fact to "scope"',
    { scope: 'per_ip' },
  ],
  [{ ...PER_IP, on_signal: { Spam: { factor: 1 } } }, 'on_signal.Spam', 'name the kind', { on_signal: undefined }],
  [{ ...PER_IP, on_signal: { spam: 0.5 } }, 'on_signal.spam', 'give { factor }', { on_signal: undefined }],
  [{ ...PER_IP, on_signal: { spam: { factor: 2 } } }, 'on_signal.spam.factor', 'above 0 and at most 1', FACTOR],
  [{ ...PER_IP, on_signal: { spam: { factor: 1, min: 1 } } }, 'on_signal.spam.min', 'unknown field; remove it', FACTOR],
  [
    { ...PER_IP, on_signal: { spam: { factor: 1, min_severity: 'hihg' } } },
    'on_signal.spam.min_severity',
    'did you mean "high"?',
    FACTOR,
  ],
  [{ intent: 'abus' }, 'intent', 'did you mean "abuse"?', { intent: 'abuse' }],
  [{ on_fail: 'allow' }, 'on_fail', 'use one of open, closed, local', { on_fail: 'open' }],
  [{ on_fail: 'constructor' }, 'on_fail', 'use one of open', { on_fail: 'open' }],
  [{ shards: 0 }, 'shards', WHOLE, { shards: 1 }],
  [{ shards: 11 }, 'shards', 'use at most 10', { shards: 10 }],
  [{ shards: 4, burst: 3 }, 'shards', 'use at most 3', { shards: 3 }],
  [{ shards: 4, cost: 3 }, 'shards', 'use at most 3', { shards: 3 }],
  [{ shards: 2, cost: 11 }, 'shards', 'use at most 1', { shards: 1 }],
  [{ shards: 6, by_plan: { free: { limit: 5 }, banned: { limit: 0 } } }, 'shards', 'use at most 5', { shards: 5 }],
  [{ shards: 7, limit: 1e12, window_seconds: 86_400 }, 'shards', 'divides the limit', { shards: 8 }],
  [{ shards: 2, algorithm: 'concurrency' }, 'shards', 'use 1: permits', { shards: 1 }],
  [{ shards: 2, consistency: 'approximate' }, 'shards', 'use 1: with approximate', { consistency: 'strict' }],
  [{ shards: 2, consistency: 'local' }, 'shards', 'use 1: with local', { consistency: 'leased' }],
  [{ store: '' }, 'store', 'give 1 to 255 characters', { store: 'default' }],
  [{ spread: 'world' }, 'spread', 'use one of regional, global', { spread: 'global' }],
  [{ enforce_at: 'gateway' }, 'enforce_at', 'use one of edge, service, any', { enforce_at: 'edge' }],
  [{ mode: 'dry_run' }, 'mode', 'use one of enforce, shadow', { mode: 'shadow' }],
  [{ enabled: 'yes' }, 'enabled', 'use true or false', { enabled: true }],
]

/** Mistakes in fields of other formats are reported under the names of those formats. */
const OTHER_FORMATS: Mistake[] = [
  [{ limit: null, limit_count: -1 }, 'limit_count', WHOLE, { limit_count: 0 }],
  [{ limit_count: 10 }, 'limit_count', 'remove it or "limit"', { limit_count: null }],
  [{ is_active: 'yes' }, 'is_active', 'use true or false', { is_active: true }],
  [{ http_method: 'GTE' }, 'http_method', 'did you mean "GET"?', { http_method: 'GET' }],
  [{ capacity: 0 }, 'capacity', `${WHOLE} 1`, { capacity: 1 }],
  [{ burst: 5, max_tokens: 5 }, 'max_tokens', 'remove it or "burst"', { max_tokens: null }],
  [{ burst_capacity: 5, capacity: 5 }, 'capacity', 'remove it or "burst_capacity"', { capacity: null }],
  [{ ...NO_LIMIT, rate: 0.5 }, 'rate', WHOLE, { rate: 1, window_seconds: 2 }],
  [{ ...NO_LIMIT, rate: 5, per: 'fortnight' }, 'per', 'use second, minute', { per: 'day' }],
  [{ ...NO_LIMIT, rate: 5, per: { toString: null } }, 'per', 'use second, minute', { per: 'day' }],
  [{ rate: 5 }, 'rate', 'remove it or "limit"', { rate: null }],
  [{ per: 'minute' }, 'per', 'remove it or "window_seconds"', { per: null }],
  [{ ...NO_LIMIT, rate_per_second: 0 }, 'rate_per_second', 'give a rate above 0', { rate_per_second: 0.1 }],
  [{ ...NO_LIMIT, refill_rate: -1 }, 'refill_rate', 'give a rate above 0', { refill_rate: 1 }],
  [{ ...NO_LIMIT, rate_per_second: 0.123456 }, 'rate_per_second', 'use limit', { rate_per_second: 0.125 }],
  [{ ...NO_LIMIT, rate_per_second: 1e15 }, 'rate_per_second', WHOLE, { rate_per_second: 1e12 }],
  [{ rate_per_second: 5 }, 'rate_per_second', 'remove it or "limit"', { rate_per_second: null }],
  [{ match: 'ip' }, 'match', 'give an object with "dimension"', { match: { dimension: 'ip' } }],
  [{ match: { dimension: 'planet' } }, 'match.dimension', 'use one of global, user', { match: { dimension: 'ip' } }],
  [{ match: { dimension: 'valueOf' } }, 'match.dimension', 'use one of', { match: { dimension: 'ip' } }],
  [{ match: { scope: 'api' } }, 'match.scope', 'start it with "/"', { match: { scope: '/api' } }],
  [{ match: { scope: 5 } }, 'match.scope', 'give a path', { match: { scope: '/5' } }],
  [{ match: { path: '/a' } }, 'match.path', 'use only dimension and scope', { match: { scope: '/a' } }],
  [{ scope: 'ip', match: { dimension: 'ip' } }, 'match.dimension', 'remove it or "scope"', { scope: null }],
  [{ key_pattern: 'user:alice' }, 'key_pattern', 'use "global", "user:{user_id}"', { key_pattern: 'user:{user_id}' }],
  [{ key_pattern: 'toString' }, 'key_pattern', 'use "global"', { key_pattern: 'global' }],
  [{ key_pattern: { toString: null } }, 'key_pattern', 'use "global"', { key_pattern: 'global' }],
  [{ key_pattern: 'ip:{ip}', scope: 'user' }, 'key_pattern', 'make it match scope "user"', { scope: 'ip' }],
  [{ key_pattern: 'endpoint:/a/' }, 'key_pattern', 'write "/a"', { key_pattern: 'endpoint:/a' }, '/a/'],
]

describe.each([
  ['a mistake', MISTAKES],
  ['a mistake in the format of another system', OTHER_FORMATS],
])('%s is reported once, with field, value and a fix that works', (_title, mistakes) => {
  test.each(mistakes)('%j: %s: %s', (invalid, field, fix, corrected, ...values) => {
    const value = values.length > 0 ? values[0] : valueAt(invalid, field)
    expect(fieldErrorsOf([{ ...BASE, ...invalid }])).toEqual([
      { field: `rules[0].${field}`, value, fix: expect.stringMatching(literally(fix)) },
    ])
    expect(parseRules([{ ...BASE, ...invalid, ...corrected }])).toHaveLength(1)
  })
})

describe('a mistake outside a rule is reported', () => {
  test.each<[string, unknown, string, unknown, string]>([
    ['nothing', undefined, 'rules', undefined, 'give a list of rules'],
    ['a text', 'rules', 'rules', 'a string of 5 characters', 'give a list of rules'],
    ['one rule instead of a list', BASE, 'rules', 'an object', 'give a list of rules'],
    ['rules that are no list', { rules: 5 }, 'rules', 5, 'give a list of rules'],
    ['a field beside the rules', { rules: [BASE], defaults: 5 }, 'defaults', 5, 'unknown field'],
    ['a rule that is null', [null], 'rules[0]', null, 'give an object with at least rule_id and limit'],
    ['a rule that is a list', [[BASE]], 'rules[0]', [BASE], 'give an object'],
    ['two rules with one id', [BASE, BASE], 'rules[1].rule_id', 'a', 'choose another: rules[0] has this id'],
    [
      'one id in two spellings',
      [
        { ...BASE, rule_id: 7 },
        { ...BASE, rule_id: '7' },
      ],
      'rules[1].rule_id',
      '7',
      'choose',
    ],
    ['too many rules', Array(RULES_MAX + 1), 'rules', RULES_MAX + 1, `give at most ${RULES_MAX} rules`],
  ])('%s', (_title, input, field, value, fix) => {
    expect(fieldErrorsOf(input)).toMatchObject([{ field, value, fix: expect.stringMatching(literally(fix)) }])
  })
})

describe('many mistakes', () => {
  const TEN: [field: string, value: unknown, fix: string][] = [
    ['rules[0].rule_id', 'Bad Id', 'characters of a-z'],
    ['rules[0].limit', -5, WHOLE],
    ['rules[1].endpoint_pattern', 'messages', 'start it with "/"'],
    ['rules[1].method', 'GTE', 'did you mean "GET"?'],
    ['rules[1].algorithm', 'tokenbucket', 'did you mean "token_bucket"?'],
    ['rules[2].scope', 'per_session', 'use global'],
    ['rules[2].window_seconds', 0, 'give seconds from 0.001'],
    ['rules[2].burst', 0.5, WHOLE],
    ['rules[3].limitt', 5, 'did you mean "limit"?'],
    ['rules[5].rule_id', 'twice', 'choose another: rules[4] has this id'],
  ]

  test('ten in one file are ten messages, each with field, value and fix', () => {
    const rules = [
      { ...BASE, rule_id: 'Bad Id', limit: -5 },
      { ...BASE, rule_id: 'b', endpoint_pattern: 'messages', method: 'GTE', algorithm: 'tokenbucket' },
      { ...BASE, rule_id: 'c', scope: 'per_session', window_seconds: 0, burst: 0.5 },
      { ...BASE, rule_id: 'd', limitt: 5 },
      { ...BASE, rule_id: 'twice' },
      { ...BASE, rule_id: 'twice' },
    ]
    const error = rejectionOf({ rules })
    const messages = error?.message.replace('[RULE_INVALID] ', '').split('\n')
    expect(messages).toHaveLength(10)
    expect(error?.fieldErrors).toHaveLength(10)
    for (const [field, value, fix] of TEN) {
      expect(error?.fieldErrors).toContainEqual({ field, value, fix: expect.stringContaining(fix) })
      const message = messages?.find((line) => line.startsWith(`${field}: `))
      expect(message).toContain(fix)
      expect(message).toContain(`(got ${JSON.stringify(value)})`)
    }
  })

  test('give one error each, in any order, each at its rule', () => {
    const some = fc.subarray([...MISTAKES, ...OTHER_FORMATS], { minLength: 10, maxLength: 20 })
    fc.assert(
      fc.property(some, (mistakes) => {
        const errors = fieldErrorsOf(
          mistakes.map(([invalid], index) => ({ ...BASE, rule_id: `r${index}`, ...invalid })),
        )
        expect(errors.map(({ field }) => field)).toEqual(mistakes.map(([, field], at) => `rules[${at}].${field}`))
      }),
    )
  })

  test('are reported up to a hundred', () => {
    expect(fieldErrorsOf(Array(500).fill({ ...BASE, limit: -1 }))).toHaveLength(100)
  })
})

describe('arbitrary input', () => {
  const anything = fc.anything({
    withBigInt: true,
    withDate: true,
    withMap: true,
    withNullPrototype: true,
    withObjectString: true,
    withSparseArray: true,
    withTypedArray: true,
    key: fc.oneof(fc.string(), fc.constantFrom('__proto__', 'constructor', 'toString', 'rules', 'limit', 'not')),
  })
  const names = ['rule_id', 'limits', 'by_plan', 'when', 'match', 'key_pattern', 'per', 'rate', 'lease', 'scope']
  const value = fc.oneof(anything, fc.jsonValue())
  const nearly = fc.dictionary(fc.constantFrom(...names, 'window', 'burst', 'cost', 'plan', '__proto__'), value)

  test.each<[string, fc.Arbitrary<unknown>]>([
    ['JSON', fc.jsonValue()],
    ['anything but a function', anything],
    ['a rule with anything in it', nearly.map((fields) => [{ ...BASE, ...fields }])],
    ['a rule with a limit of anything', value.map((limit) => [{ ...BASE, ...NO_LIMIT, limits: [limit] }])],
    ['a rule with a plan of anything', value.map((pro) => [{ ...BASE, by_plan: { pro } }])],
    ['a rule with a condition of anything', value.map((tier) => [{ ...BASE, when: { tier, ip: { not: tier } } }])],
  ])('%s is parsed, or rejected as RULE_INVALID with a fix', (_what, inputs) => {
    fc.assert(
      fc.property(inputs, (input) => {
        const rejection = rejectionOf(input)
        expect(rejection === undefined || (rejection.code === 'RULE_INVALID' && rejection.fieldErrors.length > 0)).toBe(
          true,
        )
        for (const { field, fix } of rejection?.fieldErrors ?? [])
          expect([typeof field, fix.length > 5]).toEqual(['string', true])
      }),
      { numRuns: 300 },
    )
  })

  test('nested 100,000 levels deep is rejected like any other', () => {
    let deep: unknown = []
    for (let depth = 0; depth < 100_000; depth += 1) deep = [deep]
    expect(fieldErrorsOf([{ ...BASE, when: deep }])).toHaveLength(1)
    expect(fieldErrorsOf([{ ...BASE, name: deep }])).toHaveLength(1)
    expect(fieldErrorsOf(deep).length).toBe(1)
  })
})

/** The LimiterError that parsing throws, if any. */
function rejectionOf(input: unknown): LimiterError | undefined {
  try {
    parseRules(input)
  } catch (error) {
    if (error instanceof LimiterError) return error
    throw error
  }
  return undefined
}

function fieldErrorsOf(input: unknown): LimiterError['fieldErrors'] {
  const rejection = rejectionOf(input)
  expect(rejection?.code).toBe('RULE_INVALID')
  return rejection?.fieldErrors ?? []
}

/** `by_plan.pro.limit` of a rule. */
function valueAt(fields: Fields, field: string): unknown {
  return field.split('.').reduce<unknown>((value, name) => (value as Fields)[name], fields)
}

function literally(text: string | RegExp): RegExp {
  return typeof text === 'string' ? new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')) : text
}

function conditions(count: number): Fields {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`fact${index}`, 'x']))
}

function tiers(count: number): Fields[] {
  return Array.from({ length: count }, (_, index) => ({ limit: 1, window_seconds: index + 1 }))
}
