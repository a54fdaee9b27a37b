// Compares contenders on Redis, each with its own process and redis-server, so that they do not affect each other; only
// one runs at a time. The cost of a check is the CPU time of Redis; the size of a key is the memory of Redis once all
// keys exist. Both are reported by INFO.

import { withIsolated } from './isolated.ts'
import { alternate, type Contender, type Samples } from './measure.ts'
import { KEYS } from './redis-contender.ts'
import { type RedisServer, withRedis } from './redis-server.ts'

export type RedisComparison<Name extends string> = {
  /** Per round: `checks/s`, and `redis µs`, the CPU time of Redis per check. */
  readonly samples: Samples<Name>
  readonly bytesPerKey: Readonly<Record<Name, number>>
}

export function compareOnRedis<Name extends string>(
  module: string,
  names: readonly Name[],
  rounds: number,
): Promise<RedisComparison<Name>> {
  return withRedis(names.length, (servers) => {
    const serverOf = (name: Name) => servers[names.indexOf(name)] as RedisServer // one per contender
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

/** The first round of a contender uses every key once. */
async function fill(contender: Contender, server: RedisServer): Promise<number> {
  const beforeBytes = await server.usedBytes()
  await contender.round()
  const bytes = (await server.usedBytes()) - beforeBytes
  const keys = await server.keys()
  if (keys < KEYS) throw new Error(`Redis holds ${keys} keys after ${KEYS} were checked`)
  return bytes / KEYS
}

/** Adds the CPU time of Redis to the sample of the contender. */
export function watch(contender: Contender, server: Pick<RedisServer, 'cpuUs'>): Contender {
  return {
    async round() {
      const beforeUs = await server.cpuUs()
      const { checks = 0, ...sample } = await contender.round()
      return { ...sample, 'redis µs': ((await server.cpuUs()) - beforeUs) / checks }
    },
  }
}
