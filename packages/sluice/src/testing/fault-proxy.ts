// TCP proxy that injects connection faults between a store under test and a real server.

import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

export type FaultProxy = {
  readonly port: number
  /** Resets the connection that carries the next reply, after `bytes` of it have passed. */
  cutNextReply(bytes: number): void
  /** Delays every later reply. */
  delayReplies(ms: number): void
  /** Resets every connection and accepts none until reopened. */
  shut(): void
  open(): void
  /** Connections that were reset so far. */
  readonly cuts: number
  stop(): Promise<void>
}

export async function startFaultProxy(targetPort: number): Promise<FaultProxy> {
  const sockets = new Set<Socket>()
  let cutAfter: number | undefined
  let cuts = 0
  let delayMs = 0
  let isShut = false
  const server = createServer((client) => {
    if (isShut) return void client.resetAndDestroy()
    const target = connect(targetPort, '127.0.0.1')
    const late: Late[] = []
    for (const socket of [client, target]) {
      sockets.add(socket)
      socket.on('close', () => sockets.delete(socket))
      socket.on('error', () => socket.destroy()) // resets are expected here
    }
    client.on('close', () => target.destroy())
    target.on('close', () => client.destroy())
    client.pipe(target)
    target.on('data', (reply) => {
      if (delayMs > 0 || late.length > 0) return void delay(late, client, reply, delayMs)
      if (cutAfter === undefined) return void client.write(reply)
      const passed = reply.subarray(0, cutAfter)
      cutAfter = undefined
      cuts += 1
      client.write(passed, () => client.resetAndDestroy())
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  return {
    port: address !== null && typeof address === 'object' ? address.port : 0,
    get cuts() {
      return cuts
    },
    cutNextReply(bytes) {
      cutAfter = bytes
    },
    delayReplies(ms) {
      delayMs = ms
    },
    shut() {
      isShut = true
      for (const socket of sockets) socket.destroy()
    },
    open() {
      isShut = false
    },
    async stop() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

type Late = { readonly reply: Buffer; readonly dueMs: number }

/** Sequential, to keep the order of bytes. */
function delay(late: Late[], client: Socket, reply: Buffer, ms: number): void {
  if (late.push({ reply, dueMs: performance.now() + ms }) > 1) return
  const next = () => {
    const [first] = late
    if (first !== undefined) setTimeout(writeDue, first.dueMs - performance.now())
  }
  const writeDue = () => {
    const nowMs = performance.now()
    while (late[0] !== undefined && late[0].dueMs <= nowMs) client.write(late.shift()?.reply ?? '')
    next()
  }
  next()
}
