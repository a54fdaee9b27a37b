// Flags for the facts of a request, and the body of a check built from them.

import type { CheckBody } from '../checks/check-body.ts'
import type { Given } from './arguments.ts'
import type { Flag } from './command.ts'

const COST_MAX = 1_000_000_000

export const SUBJECT_FLAGS: readonly Flag[] = [
  { name: 'user', value: '<id>', help: 'User; client_id in the HTTP API.' },
  { name: 'ip', value: '<address>', help: 'IP address of the client.' },
  { name: 'api-key', value: '<key>', help: 'API key of the client.' },
  { name: 'tenant', value: '<name>', help: 'Tenant of the client.' },
  { name: 'plan', value: '<name>', help: 'Plan of the client.' },
  { name: 'method', value: '<method>', help: 'HTTP method of the request.' },
  {
    name: 'path',
    value: '<path>',
    help: 'Path of the request; endpoint in the HTTP API.',
    accepts: (text) => text.startsWith('/'),
    fix: 'give a path that starts with "/"',
  },
  {
    name: 'cost',
    value: '<units>',
    help: 'Cost of the request in units.',
    accepts: (text) => /^\d{1,10}$/.test(text) && Number(text) >= 1 && Number(text) <= COST_MAX,
    fix: `give a whole number from 1 to ${COST_MAX}`,
  },
  {
    name: 'attribute',
    value: '<name=value>',
    help: 'Attribute that rules use; may be repeated.',
    repeats: true,
    accepts: (text) => text.indexOf('=') > 0,
    fix: 'use the form name=value',
  },
]

const FIELDS = {
  user: 'client_id',
  ip: 'ip_address',
  'api-key': 'api_key',
  tenant: 'tenant',
  plan: 'plan',
  method: 'method',
  path: 'endpoint',
} as const

export function bodyOf(given: Given): CheckBody {
  const texts = Object.entries(FIELDS).flatMap(([flag, field]) => (given.has(flag) ? [[field, given.text(flag)]] : []))
  const cost = given.text('cost')
  const attributes = given.texts('attribute').map((text) => {
    const equals = text.indexOf('=')
    return [text.slice(0, equals), text.slice(equals + 1)]
  })
  return {
    ...Object.fromEntries(texts),
    ...(cost === undefined ? {} : { cost: Number(cost) }),
    ...(attributes.length === 0 ? {} : { attributes: Object.fromEntries(attributes) }),
  }
}
