// The guarantees of leases hold with remote nodes: the simulation of the library, with the lease protocol between each
// node and the store. Messages are delayed, reordered and lost; nodes crash, are partitioned and have wrong clocks.

import { randomBytes } from 'node:crypto'
import type { Limit, RemoteView, Store } from 'sluice'
import { RemoteStore } from 'sluice/remote'
import { decodeRequests, encodeReplies } from 'sluice/remote-wire'
import { expect, test } from 'vitest'
import type { Timers } from '../../../sluice/src/clock.ts'
import { runSync } from '../../../sluice/src/slices.ts'
import type { Network } from '../../../sluice/test/simulation/network.ts'
import { simulate } from '../../../sluice/test/simulation/simulate.ts'
import { LeaseExchange } from '../../src/grpc/leases/exchange.ts'

/** Few enough to take seconds. */
const { SIM_SEEDS = '5', SIM_FIRST = '1' } = process.env

test(`every guarantee holds in ${SIM_SEEDS} simulated runs with remote nodes`, { timeout: 1_200_000 }, async () => {
  const first = Number(SIM_FIRST)
  for (let seed = first; seed < first + Number(SIM_SEEDS); seed += 1) {
    expect(await simulate(seed, connectRemotely()), `seed ${seed}: SIM_FIRST=${seed} SIM_SEEDS=1`).toEqual([])
  }
})

/** A service that knows each version of each limit, as nodes of a fleet do while an edit is applied. */
function connectRemotely(): (network: Network, central: Store, timers: Timers) => Store {
  const limits = new Map<string, Limit>()
  const keys = { all: [randomBytes(32)] }
  let ids = 0
  return (network, central, timers) => {
    const exchange = new LeaseExchange({
      limiter: { remote: viewOf(limits), redeem: unused, peek: unused },
      store: central,
      keys,
      check: unused,
      receipts: { admitted: unused, find: unused },
      newId: () => `id-${ids++}`,
      onError: (error) => {
        throw error
      },
    })
    const caller = { id: 'token', role: 'check' } as const
    const remote = new RemoteStore({
      exchange: (message) =>
        network.call(async () =>
          runSync(encodeReplies(await exchange.handle(runSync(decodeRequests(message)), caller))),
        ),
      nameOf: (ruleId) => ({ ruleId, name: 'default', plan: undefined, byIp: false, scope: ['owner', 'detail'] }),
      timers,
    })
    return withVersions(remote, limits)
  }
}

/** Names limits by id and version, so that the service applies the version of the node. */
function withVersions(store: RemoteStore, limits: Map<string, Limit>): Store {
  const versioned = <B extends { readonly limit: Limit }>(bucket: B): B => {
    const { limit } = bucket
    limits.set(limit.id, limit)
    return bucket
  }
  return {
    take: (take) => {
      for (const charge of take.charges) versioned(charge)
      return store.take(take)
    },
    peek: (charges) => store.peek(charges),
    give: (gives, opId, key) => store.give(gives, opId, key),
    reset: (bucket) => store.reset(bucket),
    close: () => store.close(),
  }
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

function leased(limit: Limit): Limit {
  const lease = { storeLimit: limit, firstUnits: 1, unitsMax: 1e6, hotUnitsMax: 1e6, ttlUs: 1e6 }
  return { ...limit, lease }
}

function unused(): never {
  throw new Error('the simulation does not use it')
}
