import { expect, test } from 'vitest'
import { grouped } from './format.ts'

test.each([
  [
    '10 per 1 s, 5000 per 3600 s, up to 1999 in the worst 60 s',
    '10 per 1 s, 5,000 per 60 min, up to 1,999 in the worst 60 s',
  ],
  ['21 of 8103 pairs newly denied', '21 of 8,103 pairs newly denied'],
  ['rule orders_2024 and api.2024 on /v1/12345 at v1.20345', 'rule orders_2024 and api.2024 on /v1/12345 at v1.20345'],
  ['limit 100000.', 'limit 100,000.'],
])('%s', (sentence, text) => {
  expect(grouped(sentence)).toBe(text)
})
