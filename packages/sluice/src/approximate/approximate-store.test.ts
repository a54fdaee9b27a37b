import { describe, expect, test } from 'vitest'
import { compileLimit, type LimitNumbers } from '../algorithms/limit.ts'
import { LimiterError } from '../errors.ts'
import { guardStore } from '../failure/guard-store.ts'
import { memoryStore } from '../store/memory.ts'
import type { Charge, Store, Take, Taken } from '../store/store.ts'
import { fakeClock } from '../testing/fake-clock.ts'
import { manualTimers } from '../testing/manual-timers.ts'
import { type ApproximateOptions, approximateStore } from './approximate-store.ts'

const ALGORITHMS = ['token_bucket', 'fixed_window', 'sliding_window', 'sliding_window_log'] as const

function chargeOf(numbers: Partial<LimitNumbers> = {}, more: Partial<Charge> = {}): Charge {
  const approximate = { syncMs: 1000, maxUnsynced: 10 }
  const shared = { id: 'r', fact: 'user', units: 100, windowUs: 60e6, onFail: 'closed', approximate } as const
  const limit = compileLimit({ ...shared, algorithm: 'fixed_window', ...numbers })
  return { limit, owner: 'alice', detail: '', min: 1, max: 1, kind: 'enforce', ...more }
}

/** The same for a limit that is not approximate. */
function withoutTerms(numbers: Partial<LimitNumbers>): Charge {
  const charge = chargeOf(numbers)
  return { ...charge, limit: { ...charge.limit, approximate: undefined } }
}

/** Nodes around one store, on a fake clock. */
function fleet(count: number, options: ApproximateOptions = {}) {
  const clock = fakeClock()
  const timers = manualTimers()
  const central = memoryStore({ clock })
  const sentTakes: Take[] = []
  let down: 'no' | 'lost' | 'broken' = 'no'
  /** Replies asynchronously, like a store behind a network. */
  const remote: Store = {
    take: async (take) => {
      sentTakes.push(take)
      await undefined
      if (down === 'broken') throw new LimiterError('STORE_UNAVAILABLE', 'down')
      const taken = central.take(take)
      if (down === 'lost') throw new LimiterError('STORE_UNAVAILABLE', 'reply lost')
      return taken
    },
    peek: async (charges) => central.peek(charges),
    give: async (gives) => central.give(gives),
    reset: async (bucket) => central.reset(bucket),
    close: async () => {},
  }
  const nodes = Array.from({ length: count }, () => approximateStore(remote, { clock, timers, ...options }))
  const advance = async (ms: number) => {
    clock.advanceMs(ms)
    timers.advance(ms)
    await settled()
  }
  const setDown = (how: typeof down) => {
    down = how
  }
  return { nodes, central, sentTakes, advance, clock, setDown }
}

/** Resolves after all pending promise callbacks. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

function remaining(store: Store, charge: Charge): number | undefined {
  return (store.peek([charge]) as Taken).grants[0]?.remaining
}

describe('approximate', () => {
  test.each(ALGORITHMS)(
    '%s: checks are decided without a round trip, and synced to the store later',
    async (algorithm) => {
      const { nodes, central, sentTakes, advance } = fleet(1)
      const [node] = nodes
      const charge = chargeOf({ algorithm })
      const answers = Array.from({ length: 4 }, () => node?.takeSync?.({ charges: [charge] }))
      expect(answers.map((taken) => [taken?.granted, taken?.source])).toEqual(Array(4).fill([true, 'local']))
      expect([sentTakes.length, remaining(central, charge)]).toEqual([0, 100])
      await advance(980)
      expect(sentTakes.length).toBe(0)
      await advance(20)
      expect([sentTakes.length, remaining(central, charge)]).toEqual([1, 96])
      await advance(5000)
      expect(sentTakes.length).toBe(1)
    },
  )

  test('at most max_unsynced units are admitted before the store acknowledges them', async () => {
    const { nodes, central, sentTakes } = fleet(1)
    const [node] = nodes
    const charge = chargeOf()
    const takes = Array.from({ length: 30 }, () => node?.take({ charges: [charge] }))
    const sync = takes.filter((taken) => !(taken instanceof Promise))
    expect(sync).toHaveLength(10)
    expect(node?.stats?.()).toMatchObject({ unsynced: 10 })
    const sources = (await Promise.all(takes)).map((taken) => taken?.source)
    expect(sources.filter((source) => source === 'store')).toHaveLength(20)
    await settled()
    expect([remaining(central, charge), node?.stats?.().unsynced]).toEqual([70, 0])
    expect(sentTakes.filter(({ charges }) => charges[0]?.kind === 'force')).toHaveLength(2)
  })

  test.each(ALGORITHMS)('%s: a sync reveals what other nodes took, debts included', async (algorithm) => {
    const { nodes, advance, central } = fleet(3)
    const charge = chargeOf({ algorithm })
    central.take({ charges: [{ ...charge, min: 92, max: 92 }] })
    const all = () => nodes.map((node) => count(node, charge, 9))
    expect(all()).toEqual([9, 9, 9])
    await advance(1000)
    expect(remaining(central, charge)).toBe(0)
    expect(nodes[2]?.stats?.().syncs_over).toBeGreaterThan(0)
    for (let rounds = 0; rounds < 2; rounds += 1) {
      for (const node of nodes) expect((await node.take({ charges: [charge] })).granted).toBe(false)
      await advance(1000) // a node that refused queries the store
    }
    // The wait reported by the model is never shorter than the store's.
    const taken = await Promise.all([...nodes, central].map((store) => store.take({ charges: [charge] })))
    const waits = taken.map(({ grants }) => grants[0]?.retryAfterUs)
    const truth = waits.pop() ?? 0
    for (const wait of waits) expect(wait).toBeGreaterThanOrEqual(truth)
  })

  test('a bucket that refused is synced again, and admits what the store would', async () => {
    const { nodes, central, advance, clock } = fleet(1)
    const [node] = nodes as [Store]
    const charge = chargeOf({ algorithm: 'sliding_window_log', units: 20 })
    clock.advanceMs(10)
    central.take({ charges: [{ ...charge, min: 19, max: 19 }] })
    expect(count(node, charge, 1)).toBe(1)
    await advance(1000)
    expect(count(node, charge, 1)).toBe(0)
    await advance(58_980) // 19 units have left the window of the store, but in the model they are as old as the sync
    expect(count(node, charge, 1)).toBe(0)
    await advance(1000)
    expect(count(node, charge, 1)).toBe(1)
  })

  test('a sync whose reply is lost is not resent, and its units stay unacknowledged', async () => {
    const { nodes, central, sentTakes, advance, setDown } = fleet(1)
    const [node] = nodes as [Store]
    const charge = chargeOf()
    setDown('lost')
    expect(count(node, charge, 4)).toBe(4)
    await advance(1000)
    await advance(5000)
    expect([remaining(central, charge), sentTakes.length]).toEqual([96, 1])
    expect(node.stats?.()).toMatchObject({ unsynced: 4, syncs_lost: 1 })
    setDown('no')
    expect(count(node, charge, 20)).toBe(6)
    await settled()
    expect([remaining(central, charge), node.stats?.().unsynced]).toEqual([90, 4])
    await advance(120_000)
    expect(node.stats?.().unsynced).toBe(0) // no window contains them any more
  })

  test.each([
    ['open', 30],
    ['closed', 10],
  ] as const)('store down, on_fail %s: decides once max_unsynced are used up', async (onFail, admitted) => {
    const timers = manualTimers()
    const unreachable: Store = {
      ...memoryStore(),
      take: () => Promise.reject(new LimiterError('STORE_UNAVAILABLE', 'gone')),
    }
    const node = approximateStore(guardStore(unreachable, { timers }), { timers })
    const charge = chargeOf({ onFail })
    const taken = await Promise.all(Array.from({ length: 30 }, () => node.take({ charges: [charge] })))
    expect(taken.filter(({ granted }) => granted)).toHaveLength(admitted)
    expect(taken.filter(({ source }) => source === 'local')).toHaveLength(10)
    expect(taken.filter(({ source }) => source === 'policy')).toHaveLength(20)
  })

  test('combined with strict limits: all or nothing', async () => {
    const { nodes, central } = fleet(1)
    const [node] = nodes as [Store]
    const charge = chargeOf()
    const strict = withoutTerms({ id: 'strict', units: 3 })
    const answers: Taken[] = []
    for (let takes = 0; takes < 5; takes += 1) answers.push(await node.take({ charges: [strict, charge] }))
    expect(answers.map(({ granted }) => granted)).toEqual([true, true, true, false, false])
    expect(answers[4]?.grants.map(({ units, short }) => [units, short])).toEqual([
      [0, 'now'],
      [0, false],
    ])
    expect((await node.peek([charge])).grants[0]?.remaining).toBe(97)
    expect(count(node, charge, 97)).toBe(7)
    const spent = chargeOf({ id: 'spent', units: 1 })
    expect(count(node, spent, 2)).toBe(1)
    const other = withoutTerms({ id: 'other', units: 3 })
    expect(await node.take({ charges: [other, spent] })).toMatchObject({ granted: false, source: 'local' })
    expect(remaining(central, other)).toBe(3)
  })

  test('units given back before a sync never reach the store; after it they go there', async () => {
    const { nodes, central, advance } = fleet(1)
    const [node] = nodes as [Store]
    const charge = chargeOf()
    const taken = node.takeSync?.({ charges: [charge] }) as Taken
    await node.give([{ ...charge, units: 1, bookedUs: taken.nowUs }])
    expect(node.stats?.().unsynced).toBe(0)
    expect(count(node, charge, 3)).toBe(3)
    await advance(1000)
    await node.give([{ ...charge, units: 2, bookedUs: taken.nowUs }])
    expect([remaining(central, charge), (await node.peek([charge])).grants[0]?.remaining]).toEqual([99, 99])
  })

  // Not token_bucket: its refunds discount units that have refilled.
  test.each(ALGORITHMS.slice(1))(
    '%s: a refund of synced units leaves unsynced units to be synced',
    async (algorithm) => {
      const { nodes, central, advance } = fleet(1)
      const [node] = nodes as [Store]
      const charge = chargeOf({ algorithm, windowUs: 3600e6 })
      const taken = node.takeSync?.({ charges: [charge] }) as Taken
      count(node, charge, 3)
      await advance(1000)
      count(node, charge, 2)
      await node.give([{ ...charge, units: 4, bookedUs: taken.nowUs }])
      expect([node.stats?.().unsynced, remaining(central, charge)]).toEqual([2, 100])
      await advance(1000)
      expect([node.stats?.().unsynced, remaining(central, charge)]).toEqual([0, 98])
    },
  )

  test('a reset discards unsynced units', async () => {
    const { nodes, central, advance } = fleet(1)
    const [node] = nodes as [Store]
    const charge = chargeOf()
    count(node, charge, 4)
    await node.reset(charge)
    await advance(2000)
    expect([remaining(central, charge), (await node.peek([charge])).grants[0]?.remaining]).toEqual([100, 100])
  })

  test('closing syncs the remaining units, once', async () => {
    const { nodes, central, advance } = fleet(1)
    const [node] = nodes as [Store]
    const charges = ['a', 'b', 'c'].map((owner) => chargeOf({}, { owner }))
    for (const charge of charges) count(node, charge, 3)
    await node.close()
    await advance(5000)
    expect(charges.map((charge) => remaining(central, charge))).toEqual([97, 97, 97])
  })

  test('an edit of the rule does not free unacknowledged units', () => {
    const { nodes } = fleet(1)
    const [node] = nodes as [Store]
    expect(count(node, chargeOf(), 7)).toBe(7)
    expect(count(node, chargeOf({ units: 200, generation: 1 }), 7)).toBe(3)
  })

  test('beyond the cap on keys, the store decides', async () => {
    const { nodes, sentTakes } = fleet(1, { maxKeys: 100 })
    const [node] = nodes as [Store]
    const keys = Array.from({ length: 150 }, (_, key) => chargeOf({}, { owner: `key-${key}` }))
    const taken = await Promise.all(keys.map((charge) => node.take({ charges: [charge] })))
    expect(taken.every(({ granted }) => granted)).toBe(true)
    expect([sentTakes.length, taken.filter(({ source }) => source === 'store').length]).toEqual([50, 50])
    const few = approximateStore(memoryStore(), { accountsMax: 10 })
    expect(keys.filter((charge) => few.takeSync?.({ charges: [charge] }) !== undefined)).toHaveLength(10)
    await few.close()
  })
})

describe('local', () => {
  test('each process applies its node share without querying the store', async () => {
    const { nodes, sentTakes, advance, central } = fleet(2, { nodes: 2 })
    const charge = withoutTerms({ local: true })
    expect(nodes.map((node) => count(node, charge, 80))).toEqual([50, 50])
    await advance(5000)
    await Promise.all(nodes.map((node) => node.close()))
    expect([sentTakes.length, remaining(central, charge)]).toEqual([0, 100])
  })
})

/** Number of takes granted synchronously, out of `times`. */
function count(node: Store | undefined, charge: Charge, times: number): number {
  const taken = Array.from({ length: times }, () => node?.takeSync?.({ charges: [charge] }))
  return taken.filter((one) => one?.granted).length
}
