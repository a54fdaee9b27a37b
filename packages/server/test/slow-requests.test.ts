import { once } from 'node:events'
import { connect } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { dripping } from './gateway/setup.ts'
import { CHECK, serveFile } from './service.ts'

/** 10 s, one second between two checks, and a margin for a busy machine. */
const CUT_MS_MAX = 20_000

test('slow requests are aborted after 10 s, in the headers and in the body', async () => {
  const { address } = await serveFile('[]')
  const head = `POST ${CHECK} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n`
  const answers = await Promise.all(
    [`${head}X: `, `${head}Content-Length: 10000\r\n\r\n{"client_id":"`].map(async (start) => {
      const socket = connect(Number(new URL(address).port), '127.0.0.1')
      onTestFinished(() => void socket.destroy())
      socket.on('error', () => {}).write(start)
      dripping(() => void (socket.writable && socket.write('x')))
      const began = performance.now()
      const [answer] = (await once(socket, 'data')) as [Buffer]
      expect(performance.now() - began).toBeLessThan(CUT_MS_MAX)
      return answer.toString()
    }),
  )
  for (const answer of answers) expect(answer).toMatch(/^HTTP\/1\.1 400.*did not arrive in time/s)
})
