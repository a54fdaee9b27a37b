import { expect, test } from 'vitest'
import { keepTickShape } from './tick-shape.ts'

test('one of the objects that process.nextTick makes is kept', () => {
  expect(keepTickShape()).toMatchObject({ callback: expect.any(Function) })
})
