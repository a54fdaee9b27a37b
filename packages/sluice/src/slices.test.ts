import { expect, test } from 'vitest'
import { atOnce, inSlices, mapped, type Sliced } from './slices.ts'

function* counting(steps: number): Sliced<number> {
  for (let step = 0; step < steps; step += 1) yield
  return steps
}

test('work in slices gives what the same work gives at once', async () => {
  const work = () => mapped([1, 2, 3], (item, index) => item * 10 + index)
  expect(await inSlices(work())).toEqual(atOnce(work()))
  expect(atOnce(counting(5))).toBe(5)
})

test('others have their turn between two slices, however long the work is', async () => {
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

test('an error in the work is the error of the promise', async () => {
  const failing = mapped([1], () => {
    throw new Error('on purpose')
  })
  await expect(inSlices(failing)).rejects.toThrow('on purpose')
})
