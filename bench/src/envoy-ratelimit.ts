// Builds envoyproxy/ratelimit with Go and starts it on a Redis of its own.

import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { ENVOY_CONFIG, type GrpcServer } from './grpc-service.ts'
import { cpuUsOf } from './http-server.ts'
import { freePort, type RedisServer } from './redis-server.ts'

/** The last release is from 2020. This is a commit of April 2023 whose checksum Go can verify. */
export const ENVOY_RATELIMIT = 'github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20230427142404-e2a87f41d3a7'
const BUILD_MS = 300_000
const START_MS = 30_000

/** Returns the binary, or the reason why there is none. The second build takes seconds: Go caches packages. */
export async function buildEnvoyRatelimit(folder: string): Promise<{ path: string } | { missing: string }> {
  try {
    const env = { ...process.env, GOBIN: folder }
    await promisify(execFile)('go', ['install', ENVOY_RATELIMIT], { env, timeout: BUILD_MS })
    return { path: join(folder, 'service_cmd') }
  } catch (error) {
    const { code, stderr } = error as { code?: string | number; stderr?: string }
    if (code === 'ENOENT') return { missing: 'Go is not installed' }
    return { missing: `go install failed: ${stderr?.trim().split('\n').at(-1) || 'it took more than 5 minutes'}` }
  }
}

/** Settings are the defaults, apart from addresses and statsd. */
export async function startEnvoyRatelimit(binary: string, redis: RedisServer, more: object = {}): Promise<GrpcServer> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-bench-ratelimit-'))
  await mkdir(join(folder, 'config'))
  await writeFile(join(folder, 'config', 'ratelimit.yaml'), ENVOY_CONFIG)
  const [port, httpPort, debugPort] = [await freePort(), await freePort(), await freePort()]
  const settings = {
    ...{ HOST: '127.0.0.1', PORT: String(httpPort), DEBUG_HOST: '127.0.0.1', DEBUG_PORT: String(debugPort) },
    ...{ GRPC_HOST: '127.0.0.1', GRPC_PORT: String(port), USE_STATSD: 'false', LOG_LEVEL: 'error' },
    ...{ RUNTIME_ROOT: folder, RUNTIME_WATCH_ROOT: 'false' },
    ...{ REDIS_SOCKET_TYPE: 'tcp', REDIS_URL: `127.0.0.1:${redis.port}`, ...more },
  }
  const child = spawn(binary, { env: { ...process.env, ...settings }, stdio: ['ignore', 'ignore', 'inherit'] })
  const exited = once(child, 'exit')
  const abandon = () => {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', abandon) // when the benchmark is interrupted
  const stop = async () => {
    child.kill('SIGTERM')
    await exited
    abandon()
    process.off('exit', abandon)
  }
  try {
    await Promise.race([isHealthy(httpPort), exited.then(([code]) => Promise.reject(exitError(code)))])
  } catch (error) {
    await stop()
    throw error
  }
  // The pid is set, because the server has answered.
  return { port, cpuUs: () => cpuUsOf(child.pid as number), storeUs: () => redis.cpuUs(), stop }
}

async function isHealthy(port: number): Promise<void> {
  const endMs = performance.now() + START_MS
  for (;;) {
    const answer = await fetch(`http://127.0.0.1:${port}/healthcheck`).catch(() => undefined)
    if (answer?.ok) return
    if (performance.now() > endMs) throw new Error('envoyproxy/ratelimit was not healthy within 30 s')
    await delay(50)
  }
}

function exitError(code: unknown): Error {
  return new Error(`envoyproxy/ratelimit exited with code ${code} before it was healthy`)
}
