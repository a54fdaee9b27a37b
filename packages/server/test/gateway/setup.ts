// A gateway in front of a real server, both in this process on free ports, for one test.

import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { text as readText } from 'node:stream/consumers'
import { onTestFinished } from 'vitest'
import { GATEWAY_SETTINGS, type GatewaySettings } from '../../src/gateway/settings.ts'
import { type RunningGateway, startGateway } from '../../src/gateway/start.ts'
import { captureLog, ruleFile } from '../service.ts'

export type Upstream = { readonly url: URL; readonly server: Server; stop(): Promise<void> }

export async function startUpstream(listener: RequestListener, port = 0): Promise<Upstream> {
  const server = createServer(listener).listen(port, '127.0.0.1')
  await once(server, 'listening')
  const stop = async () => {
    if (!server.listening) return
    const closed = once(server, 'close')
    server.close()
    server.closeAllConnections()
    await closed
  }
  onTestFinished(stop)
  return { url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`), server, stop }
}

/** Reports the requests that reach it. */
export const echo: RequestListener = (request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    const { method, url, rawHeaders } = request
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ method, url, rawHeaders, body: Buffer.concat(chunks).toString() }))
  })
}

export type Echoed = { method: string; url: string; rawHeaders: string[]; body: string }

export type TestGateway = RunningGateway & { readonly logged: readonly Record<string, unknown>[] }

export async function openGateway(
  rules: unknown,
  settings: Partial<GatewaySettings>,
  closeMsMax?: number,
): Promise<TestGateway> {
  const { log, logged } = captureLog()
  const defaults = Object.entries(GATEWAY_SETTINGS).map(([name, { fallback }]) => [name, fallback()])
  const gateway = await startGateway(
    {
      ...(Object.fromEntries(defaults) as GatewaySettings),
      ...{ port: 0, listen: { host: '127.0.0.1', port: 0 }, rules: ruleFile(JSON.stringify(rules), 'rules.json') },
      ...settings,
    },
    log,
    closeMsMax,
  )
  onTestFinished(() => gateway.close())
  return { ...gateway, logged }
}

/** Everything that comes back for these bytes, until the other side closes. */
export async function exchange(address: string, bytes: string): Promise<string> {
  const { hostname, port } = new URL(address)
  const socket = connect(Number(port), hostname)
  socket.write(bytes, 'latin1')
  return readText(socket)
}

export function statusesIn(answer: string): number[] {
  return [...answer.matchAll(/^HTTP\/1\.1 (\d{3})/gm)].map(([, status]) => Number(status))
}

/** Values of a header in a list of alternating names and values. */
export function linesOf(rawHeaders: readonly string[], name: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name)
}

/** Calls `drop` every 20 ms until the test ends or the returned function is called. */
export function dripping(drop: () => void): () => void {
  let timer: NodeJS.Timeout
  const next = () => {
    drop()
    timer = setTimeout(next, 20)
  }
  timer = setTimeout(next, 20)
  const stop = () => clearTimeout(timer)
  onTestFinished(stop)
  return stop
}
