import { expect, test } from 'vitest'
import type { LimiterError } from '../errors.ts'
import { parseRules } from './parse.ts'

const BASE = { rule_id: 'a', limit: 10, window_seconds: 60 }

test.each<[rule: object, field: string, fix: string]>([
  [{ path: '/a' }, 'path', 'did you mean "endpoint_pattern"?'],
  [{ endpoint: '/a' }, 'endpoint', 'did you mean "endpoint_pattern"?'],
  [{ client_id: 'a' }, 'client_id', 'put it in "when" as "user"'],
  [{ tenant: 'a' }, 'tenant', 'put it in "when" as "tenant"'],
  [{ ip_address: '::1' }, 'ip_address', 'put it in "when" as "ip"'],
  [{ scope: ['client_id', 'endpoint'] }, 'scope', 'did you mean "user"?'],
  [{ scope: ['ip_address'] }, 'scope', 'did you mean "ip"?'],
  [{ scope: ['user', 'path'] }, 'scope', 'did you mean "endpoint"?'],
  [{ scope: ['apiKey'] }, 'scope', 'did you mean "api_key"?'],
  [{ scope: 'client_id' }, 'scope', 'did you mean "per_user"?'],
  [{ scope: 'per_ip_address' }, 'scope', 'did you mean "per_ip"?'],
  [{ scope: 'per_path' }, 'scope', 'did you mean "per_endpoint"?'],
])('%j, named as in the HTTP API or the library, is rejected with the name for rules', (rule, field, fix) => {
  const [error, ...others] = fieldErrorsOf({ ...BASE, ...rule })
  expect(error).toMatchObject({ field: `rules[0].${field}`, fix: expect.stringContaining(fix) })
  expect(others).toEqual([])
})

function fieldErrorsOf(rule: object): LimiterError['fieldErrors'] {
  try {
    parseRules([rule])
    return []
  } catch (error) {
    return (error as LimiterError).fieldErrors
  }
}
