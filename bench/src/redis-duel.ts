// Contenders on Redis: each in a process of its own with a redis-server of its own, alike but for the keys, so neither
// pays for what the other left behind; only one of them has work at a time. What a check costs Redis is the CPU time
// that Redis says it has used; what a key weighs, the memory it says it uses once all keys are there.

import { withIsolated } from './isolated.ts'
import { alternate, type Contender, type Samples } from './measure.ts'
import { KEYS } from './redis-contender.ts'
import { type RedisServer, withRedis } from './redis-server.ts'

export type Duel<Name extends string> = {
  /** Per round: `checks/s`, and `redis µs` of Redis CPU per check. */
  readonly samples: Samples<Name>
  readonly bytesPerKey: Readonly<Record<Name, number>>
}

export function duel<Name extends string>(module: string, names: readonly Name[], rounds: number): Promise<Duel<Name>> {
  return withRedis(names.length, (servers) => {
    const serverOf = (name: Name) => servers[names.indexOf(name)] as RedisServer // one was started for each
    return withIsolated(
      module,
      names,
      (name) => String(serverOf(name).port),
      async (contenders) => {
        const bytesPerKey: [Name, number][] = []
        for (const name of names) bytesPerKey.push([name, await fill(contenders[name], serverOf(name))])
        const watched = names.map((name) => [name, watch(contenders[name], serverOf(name))])
        return {
          bytesPerKey: Object.fromEntries(bytesPerKey) as Record<Name, number>,
          samples: await alternate(Object.fromEntries(watched) as Record<Name, Contender>, { rounds, warmups: 2 }),
        }
      },
    )
  })
}

/** The first round of a contender meets every key once. */
async function fill(contender: Contender, server: RedisServer): Promise<number> {
  const beforeBytes = await server.usedBytes()
  await contender.round()
  const bytes = (await server.usedBytes()) - beforeBytes
  const keys = await server.keys()
  if (keys < KEYS) throw new Error(`Redis holds ${keys} keys after ${KEYS} were checked`)
  return bytes / KEYS
}

/** Adds what Redis spent to what the contender measured. */
export function watch(contender: Contender, server: Pick<RedisServer, 'cpuUs'>): Contender {
  return {
    async round() {
      const beforeUs = await server.cpuUs()
      const { checks = 0, ...sample } = await contender.round()
      return { ...sample, 'redis µs': ((await server.cpuUs()) - beforeUs) / checks }
    },
  }
}
