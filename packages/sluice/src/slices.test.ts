import { expect, test } from 'vitest'
import { inSlices, mapped, runSync, type Sliced } from './slices.ts'

function* counting(steps: number): Sliced<number> {
  for (let step = 0; step < steps; step += 1) yield
  return steps
}

test('work in slices returns the same result as synchronous work', async () => {
  const work = () => mapped([1, 2, 3], (item, index) => item * 10 + index)
  expect(await inSlices(work())).toEqual(runSync(work()))
  expect(runSync(counting(5))).toBe(5)
})

test('the event loop runs between slices, however long the work is', async () => {
  let done = false
  let turns = 0
  const turn = () => {
    turns += 1
    if (!done) setImmediate(turn)
  }
  setImmediate(turn)
  await inSlices(counting(200_000))
  done = true
  expect(turns).toBeGreaterThan(2)
})

test('an error in the work rejects the promise', async () => {
  const failing = mapped([1], () => {
    throw new Error('on purpose')
  })
  await expect(inSlices(failing)).rejects.toThrow('on purpose')
})
