// More limits than the registry of the memory store keeps without reusing indexes: none is mistaken for another.

import { createLimiter, memoryStore } from 'sluice'
import { fakeClock, seededRandom } from 'sluice/testing'
import { expect, test } from 'vitest'

const RULES = 300
const WINDOWS_SECONDS = [1, 60, 3600, 86_400]

test.each(['token_bucket', 'fixed_window', 'sliding_window'])('%s: 1200 limits in use stay separate', (algorithm) => {
  const clock = fakeClock()
  const random = seededRandom(7)
  const ruleOf = (index: number) => ({
    rule_id: `rule-${index}`,
    endpoint_pattern: `/${index}`,
    scope: 'per_user',
    algorithm,
    limits: WINDOWS_SECONDS.map((window_seconds, place) => ({ limit: 3 + place, window_seconds })),
  })
  const indexes = Array.from({ length: RULES }, (_, index) => index)
  const together = createLimiter({ rules: indexes.map(ruleOf), store: memoryStore({ clock }) })
  const alone = indexes.map((index) => createLimiter({ rules: [ruleOf(index)], store: memoryStore({ clock }) }))
  for (let check = 0; check < 10_000; check += 1) {
    clock.advanceMs(random.between(0, 50))
    const index = random.between(0, RULES - 1)
    const subject = { user: `user-${random.between(0, 3)}`, path: `/${index}` }
    const expected = alone[index]?.checkSync(subject)
    expect(together.checkSync(subject)?.outcomes).toEqual(expected?.outcomes)
  }
})
