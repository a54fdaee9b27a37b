// The facts of one request as flags, and the body of a check made of them.

import type { CheckBody } from '../http/bodies/schemas.ts'
import type { Given } from './arguments.ts'
import type { Flag } from './command.ts'

const COST_MAX = 1_000_000_000

export const SUBJECT_FLAGS: readonly Flag[] = [
  { name: 'user', value: '<id>', help: 'Who asks: client_id of the API.' },
  { name: 'ip', value: '<address>', help: 'Address of the client.' },
  { name: 'api-key', value: '<key>', help: 'Key that the client presents.' },
  { name: 'tenant', value: '<name>', help: 'Organisation of the client.' },
  { name: 'plan', value: '<name>', help: 'What the client pays for.' },
  { name: 'method', value: '<method>', help: 'Method of the request.' },
  {
    name: 'path',
    value: '<path>',
    help: 'Path of the request: endpoint of the API.',
    accepts: (text) => text.startsWith('/'),
    fix: 'give a path that starts with "/"',
  },
  {
    name: 'cost',
    value: '<units>',
    help: 'Units that the request is worth.',
    accepts: (text) => /^\d{1,10}$/.test(text) && Number(text) >= 1 && Number(text) <= COST_MAX,
    fix: `give a whole number from 1 to ${COST_MAX}`,
  },
  {
    name: 'attribute',
    value: '<name=value>',
    help: 'Anything else that rules look at; may be given several times.',
    repeats: true,
    accepts: (text) => text.indexOf('=') > 0,
    fix: 'give a name and a value with "=" between them',
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
