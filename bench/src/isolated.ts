// A contender in a process of its own: it neither pays for the others' garbage nor runs code compiled for them. All
// such processes have the same shape, wait while others are measured, and start each round with a collected heap.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { Contender, Sample } from './measure.ts'

/** What a module of contenders exports: makers by name; the argument is whatever its scenario passes on. */
export type Contenders = Readonly<Record<string, (argument: string) => Contender | Promise<Contender>>>

const entry = new URL('./isolated-main.js', import.meta.url)

/** Starts `name` of `contenders` in the module (relative to this folder) and resolves once it is ready to run. */
export async function isolated(module: string, name: string, argument = ''): Promise<Contender> {
  const child = fork(entry, [module, name, argument], { execArgv: ['--expose-gc'], stdio: ['ignore', 2, 2, 'ipc'] })
  const exited = once(child, 'exit')
  const answer = async (): Promise<Sample> => {
    const gone = exited.then(([code]) => Promise.reject(new Error(`contender ${name} ended with code ${code}`)))
    const [sample] = (await Promise.race([once(child, 'message'), gone])) as [Sample]
    return sample
  }
  await answer()
  return {
    round() {
      child.send('round')
      return answer()
    },
    async close() {
      child.disconnect()
      await exited
    },
  }
}

/** Runs contenders of one module, each in its process, for as long as `work` takes. */
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
