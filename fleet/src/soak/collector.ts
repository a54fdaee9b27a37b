// The real OpenTelemetry collector: built with Go from its released modules, on a free port. It writes what it receives
// to files, as OTLP JSON lines.

import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const SOURCE = fileURLToPath(new URL('../../collector', import.meta.url))
const READY = /Everything is ready/

export type Signal = 'traces' | 'metrics'

export type Collector = {
  readonly url: string
  /** Received so far, one object per export. */
  read(signal: Signal): unknown[]
  /** Flushes the files. */
  stop(): Promise<void>
}

export function hasGo(): boolean {
  return spawnSync('go', ['version']).status === 0
}

/** Takes one to three minutes at first, seconds once Go has cached the packages. */
export async function buildCollector(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-collector-'))
  cpSync(SOURCE, folder, { recursive: true })
  const env = { ...process.env, CGO_ENABLED: '0', GOFLAGS: '-buildvcs=false -mod=mod' }
  await promisify(execFile)('go', ['build', '-o', 'collector', '.'], { cwd: folder, env })
  return join(folder, 'collector')
}

export async function startCollector(program: string): Promise<Collector> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-collector-data-'))
  const address = `127.0.0.1:${await freePort()}`
  const fileOf = (signal: Signal) => join(folder, `${signal}.jsonl`)
  const config = join(folder, 'config.yaml')
  writeFileSync(config, JSON.stringify(configuration(address, fileOf))) // YAML includes JSON
  const child = spawn(program, ['--config', `file:${config}`], { stdio: ['ignore', 'ignore', 'pipe'], detached: true })
  const kill = () => child.kill('SIGKILL')
  process.once('exit', kill)
  child.once('exit', () => process.off('exit', kill))
  await isReady(child)
  return {
    url: `http://${address}`,
    read: (signal) => {
      const text = existsSync(fileOf(signal)) ? readFileSync(fileOf(signal), 'utf8') : ''
      const lines = text.split('\n').filter((line) => line !== '')
      return lines.map((line) => JSON.parse(line) as unknown)
    },
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return
      const exit = once(child, 'exit')
      child.kill('SIGTERM')
      await exit
    },
  }
}

/** Rejects with the log of the collector if it exits first. */
function isReady(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let log = ''
    child.stderr?.on('data', (chunk: Buffer) => {
      if (READY.test(log)) return
      log += chunk.toString()
      if (READY.test(log)) resolve()
    })
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`the OpenTelemetry collector exited with ${code}:\n${log}`)))
  })
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo // a port, not a pipe
  await new Promise((resolve) => server.close(resolve))
  return port
}

function configuration(endpoint: string, fileOf: (signal: Signal) => string): object {
  const exporter = (signal: Signal) => ({ path: fileOf(signal), flush_interval: '200ms' })
  const pipeline = (signal: Signal) => ({ receivers: ['otlp'], exporters: [`file/${signal}`] })
  return {
    receivers: { otlp: { protocols: { http: { endpoint } } } },
    exporters: { 'file/traces': exporter('traces'), 'file/metrics': exporter('metrics') },
    service: {
      pipelines: { traces: pipeline('traces'), metrics: pipeline('metrics') },
      telemetry: { metrics: { level: 'none' } },
    },
  }
}
