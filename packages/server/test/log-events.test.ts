import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { LOG_EVENTS } from '../src/log-events.ts'

const PAGE = readFileSync(new URL('../../../docs/reference/log-events.md', import.meta.url), 'utf8')

test('docs/reference/log-events.md lists every event with its level, message and fields, and no other', () => {
  const rows = [...PAGE.matchAll(/^\| `(\w+)` \| (\w+) \| (.+?) \| (.*?)\| (.+) \|$/gm)]
  const documented = rows.map(([, event, level, message, fields = '']) => {
    return { event, level, message, fields: [...fields.matchAll(/`(\w+)`/g)].map(([, name]) => name) }
  })
  const logged = Object.entries(LOG_EVENTS).map(([event, spec]) => ({ event, ...spec }))
  const byEvent = (a: { event?: string | undefined }, b: { event?: string | undefined }) =>
    String(a.event).localeCompare(String(b.event))
  expect(documented.sort(byEvent)).toEqual(logged.sort(byEvent))
})

test('event names are snake_case, and a message holds no value', () => {
  for (const [event, { message }] of Object.entries(LOG_EVENTS)) {
    expect(event).toMatch(/^[a-z]+(_[a-z]+)*$/)
    expect(message).not.toContain('${')
  }
})
