import { parseRules } from 'sluice'
import { expect, test } from 'vitest'
import { ADMIN_TOKEN, MESSAGES_RULE, RULES, serveApp } from './service.ts'

test('GET lists the active rules, in the format of a rule file', async () => {
  const off = { rule_id: 'off', limit: 1, window_seconds: 1, enabled: false }
  const { get } = await serveApp([MESSAGES_RULE, off])
  const { status, body } = await get(RULES, ADMIN_TOKEN)
  expect(status).toBe(200)
  expect(body).toMatchObject({ version: 1, rules: [MESSAGES_RULE] })
  expect(parseRules(body.rules)).toEqual(parseRules([MESSAGES_RULE]))
})

test.each([
  ['POST', RULES, JSON.stringify(MESSAGES_RULE)],
  ['PUT', `${RULES}/messages_per_min`, JSON.stringify(MESSAGES_RULE)],
  ['DELETE', `${RULES}/messages_per_min`, undefined],
])('%s %s is a 409 that names the file to change instead', async (method, path, body) => {
  const { send, get } = await serveApp([MESSAGES_RULE])
  const authorization = `Bearer ${ADMIN_TOKEN}`
  const headers = { authorization, ...(body === undefined ? {} : { 'content-type': 'application/json' }) }
  const answer = await send(path, { method, headers, ...(body === undefined ? {} : { body }) })
  expect(answer).toMatchObject({ status: 409, body: { code: 'RULES_FROM_FILE' } })
  expect(answer.body.detail).toContain('/etc/sluice/rules.yaml')
  expect((await get(RULES, ADMIN_TOKEN)).body).toMatchObject({ version: 1, rules: [{ rule_id: 'messages_per_min' }] })
})
