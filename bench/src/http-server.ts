// A server in a process of its own, started as a user would start it: ready once it has printed its address, gone when
// `stop` resolves. Its CPU time is what the kernel says, over all of its threads (Linux only).

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'

export type HttpServer = {
  /** `http://127.0.0.1:40123` */
  readonly address: string
  cpuUs(): number
  stop(): Promise<void>
}

export async function startServer(script: string, args: readonly string[]): Promise<HttpServer> {
  const child = spawn(process.execPath, [script, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = once(child, 'exit')
  const abandon = () => child.kill('SIGKILL')
  process.once('exit', abandon) // when the benchmark is interrupted
  const address = await new Promise<string>((resolve, reject) => {
    let printed = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      printed += text
      const found = /http:\/\/127\.0\.0\.1:\d+(?=\s)/.exec(printed)?.[0]
      if (found !== undefined) resolve(found)
    })
    exited.then(([code]) => reject(new Error(`${script} ended with code ${code} before it had an address`)), reject)
  })
  return {
    address,
    cpuUs: () => cpuUsOf(child.pid as number), // it has one: it printed its address
    async stop() {
      child.kill('SIGTERM')
      await exited
      process.off('exit', abandon)
    },
  }
}

/** The first number of schedstat is the time a thread has run, in ns; /proc/…/stat counts in steps of 10 ms. */
function cpuUsOf(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`)
  const ns = threads.map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
  )
  return ns.reduce((sum, value) => sum + value, 0) / 1000
}
