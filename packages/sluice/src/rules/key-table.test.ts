import { expect, test } from 'vitest'
import { KeyTable } from './key-table.ts'

test('finds exactly the keys that were added and not removed, in random order', () => {
  const table = new KeyTable<number>()
  const model = new Map<string, number>()
  const wrongSteps: number[] = []
  let state = 7
  const random = (below: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return (state >>> 8) % below
  }
  for (let step = 0; step < 20_000; step += 1) {
    const [fact, owner] = [random(2) === 0 ? 'user' : 'ip', `key-${random(300)}`]
    const value = random(3) === 0 ? undefined : step
    table.change(fact, owner, () => value)
    if (value === undefined) model.delete(`${fact} ${owner}`)
    else model.set(`${fact} ${owner}`, value)
    const other = `key-${random(300)}`
    const isRight =
      table.find('user', other) === model.get(`user ${other}`) && table.find('ip', other) === model.get(`ip ${other}`)
    if (!isRight || table.isEmpty !== (model.size === 0)) wrongSteps.push(step)
  }
  expect(wrongSteps).toEqual([])
  for (const key of model.keys()) {
    const [fact = '', owner = ''] = key.split(' ')
    table.change(fact, owner, () => undefined)
  }
  expect(table.isEmpty).toBe(true)
})
