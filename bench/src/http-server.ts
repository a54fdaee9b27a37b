// Starts a server in its own process, as a user would. It is ready once it has printed its address. CPU time is that of
// all threads as reported by the kernel (Linux only).

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'

export type HttpServer = {
  /** `http://127.0.0.1:40123` */
  readonly address: string
  cpuUs(): number
  /** CPU time of the thread that serves requests. */
  mainThreadUs(): number
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
    exited.then(
      ([code]) => reject(new Error(`${script} exited with code ${code} before it printed an address`)),
      reject,
    )
  })
  return {
    address,
    // The pid is set, because the server printed its address.
    cpuUs: () => cpuUsOf(child.pid as number),
    mainThreadUs: () => threadUs(child.pid as number, String(child.pid)),
    async stop() {
      child.kill('SIGTERM')
      await exited
      process.off('exit', abandon)
    },
  }
}

export function cpuUsOf(pid: number): number {
  return readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => sum + threadUs(pid, thread), 0)
}

/** Uses schedstat, whose first number is run time in ns; /proc/…/stat has a resolution of 10 ms. */
function threadUs(pid: number, thread: string): number {
  return Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]) / 1000
}
