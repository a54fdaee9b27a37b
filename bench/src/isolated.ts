// Runs a contender in its own process, so that garbage and compiled code of others do not affect it. A process is
// idle while others are measured, and collects garbage before each round.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { Contender, Sample } from './measure.ts'

/** Exports of a contender module: factories by name; the argument comes from the scenario. */
export type Contenders = Readonly<Record<string, (argument: string) => Contender | Promise<Contender>>>

const entry = new URL('./isolated-main.js', import.meta.url)

/** Starts `name` of `contenders` in the module (relative to this folder); resolves once it is ready. */
export async function isolated(module: string, name: string, argument = ''): Promise<Contender> {
  const child = fork(entry, [module, name, argument], { execArgv: ['--expose-gc'], stdio: ['ignore', 2, 2, 'ipc'] })
  const exited = once(child, 'exit')
  const nextSample = async (): Promise<Sample> => {
    const gone = exited.then(([code]) => Promise.reject(new Error(`contender ${name} exited with code ${code}`)))
    const [sample] = (await Promise.race([once(child, 'message'), gone])) as [Sample]
    return sample
  }
  await nextSample()
  return {
    round() {
      child.send('round')
      return nextSample()
    },
    async close() {
      child.disconnect()
      await exited
    },
  }
}

/** Runs contenders of one module, each in its own process, while `work` runs. */
export async function withIsolated<Name extends string, T>(
  module: string,
  names: readonly Name[],
  argumentOf: (name: Name) => string,
  work: (contenders: Readonly<Record<Name, Contender>>) => Promise<T>,
): Promise<T> {
  const started: [Name, Contender][] = []
  try {
    for (const name of names) started.push([name, await isolated(module, name, argumentOf(name))])
    return await work(Object.fromEntries(started) as Record<Name, Contender>)
  } finally {
    for (const [, contender] of started) await contender.close?.()
  }
}
