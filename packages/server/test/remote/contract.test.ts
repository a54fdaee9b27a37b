// The store of a remote node keeps the contract of stores: over the messages of the protocol, with signed leases, on
// a service whose buckets are in memory.

import { randomBytes } from 'node:crypto'
import { type BucketName, type Limit, memoryStore, type RemoteView, type Store } from 'sluice'
import { RemoteStore } from 'sluice/remote'
import { decodeRequests, encodeReplies } from 'sluice/remote-wire'
import { storeContract } from 'sluice/testing'
import { describe, expect, test } from 'vitest'
import { runSync } from '../../../sluice/src/slices.ts'
import { charge, limitOf } from '../../../sluice/src/testing/contract-fixture.ts'
import { COUNTERFACTUAL } from '../../../sluice/src/testing/counterfactual-cases.ts'
import { LeaseExchange } from '../../src/grpc/leases/exchange.ts'

const NO_DEBT = 'a remote node adds no debt: only approximate rules use it, and the service decides those'
const NO_RESET = 'a remote node cannot reset buckets: that needs a role at the service'
const NO_PAIRS = 'rules under rollout are decided by the service'
const UTF8 = 'facts are UTF-8 on the wire, so lone surrogates are not distinct; the texts below are'

storeContract('remote', {
  describe,
  test,
  expect,
  create: (clock) => remoteStoreOn(memoryStore({ clock })),
  skip: {
    ...Object.fromEntries(Object.keys(COUNTERFACTUAL).map((title) => [title, NO_PAIRS])),
    'owner, detail, fact and limit id identify a bucket': UTF8,
    'any string is a valid owner, detail and permit, distinct from all others': UTF8,
    'force is always charged, and reports whether it was over the limit': NO_DEBT,
    'debt is capped where it can still be counted exactly': NO_DEBT,
    'negative units are debt': NO_DEBT,
    'a reset fills its bucket and no other': NO_RESET,
    'a take resets buckets and charges in one step': NO_RESET,
    'a refused take also resets': NO_RESET,
  },
})

/** The store of a remote node, and the service behind it. The service accepts every limit that the node has used. */
function remoteStoreOn(store: Store): RemoteStore {
  const limits = new Map<string, Limit>()
  const exchange = new LeaseExchange({
    limiter: { remote: viewOf(limits), redeem: unused, peek: unused },
    store,
    keys: { all: [randomBytes(32)] },
    check: unused,
    receipts: { admitted: unused, find: unused },
    newId: () => randomBytes(9).toString('hex'),
    onError: (error) => {
      throw error
    },
  })
  const remote = new RemoteStore({
    exchange: async (message) => {
      return runSync(
        encodeReplies(await exchange.handle(runSync(decodeRequests(message)), { id: 'token', role: 'check' })),
      )
    },
    nameOf: (ruleId) => ({ ruleId, name: 'default', plan: undefined, byIp: false, scope: ['owner', 'detail'] }),
  })
  return observed(remote, limits)
}

/** Registers the limits that a test uses, as rules would. */
function observed(store: RemoteStore, limits: Map<string, Limit>): RemoteStore {
  const register = (buckets: readonly BucketName[]) => {
    for (const { limit } of buckets) limits.set(limit.id, limit)
  }
  return new Proxy(store, {
    get(target, method) {
      if (method === 'take') {
        return (take: Parameters<Store['take']>[0]) => {
          register(take.charges)
          return target.take(take)
        }
      }
      if (method === 'peek') {
        return (charges: Parameters<Store['peek']>[0]) => {
          register(charges)
          return target.peek(charges)
        }
      }
      const value = Reflect.get(target, method, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

function viewOf(limits: ReadonlyMap<string, Limit>): RemoteView {
  return {
    edition: 1,
    state: unused,
    bucket: ({ ruleId }, facts) => {
      const limit = limits.get(ruleId)
      return limit && { limit: leased(limit), owner: facts.owner ?? '', detail: facts.detail ?? '' }
    },
  }
}

/** Permits leases of any size, which the contract takes. */
function leased(limit: Limit): Limit {
  const lease = { storeLimit: limit, firstUnits: 1, unitsMax: 1e15, hotUnitsMax: 1e15, ttlUs: 1e6 }
  return { ...limit, lease }
}

function unused(): never {
  throw new Error('the contract does not use it')
}

test('texts of facts stay distinct on the wire', async () => {
  const remote = remoteStoreOn(memoryStore())
  const limit = limitOf('fixed_window', { units: 1 })
  const texts = [
    'abc',
    '{abc}',
    'a b\r\nc\0',
    '%7babc%7d',
    '\ufffd',
    '\u{1f600}',
    'x'.repeat(1000),
    `${'x'.repeat(999)}y`,
    '__proto__',
  ]
  for (const granted of [true, false]) {
    for (const owner of texts) {
      for (const detail of ['', ...texts]) {
        const taken = await remote.take({ charges: [charge(limit, { owner, detail })] })
        expect(taken.granted, JSON.stringify([owner, detail])).toBe(granted)
      }
    }
  }
})
