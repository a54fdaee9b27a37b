import { expect, test } from 'vitest'
import { parseDurationMs } from './duration.ts'

test.each([
  ['500ms', 500],
  ['30s', 30_000],
  ['1m', 60_000],
  ['2h', 7_200_000],
  ['1d', 86_400_000],
  ['0s', 0],
])('%s is %i ms', (text, durationMs) => expect(parseDurationMs(text)).toBe(durationMs))

test.each([
  '',
  '1',
  'm',
  '1 m',
  ' 1m',
  '1m ',
  '-1s',
  '+1s',
  '1.5s',
  '1e3s',
  '1M',
  '1w',
  '1min',
  '1m30s',
  '999999999999999d',
  '１s',
])('%j is not a duration', (text) => expect(parseDurationMs(text)).toBeUndefined())
