// Baseline of the gateway scenario: a minimal proxy on undici, without limiter, routes or forwarded headers. Runs as
// its own process, with the address of the application as argument.

import { createServer } from 'node:http'
import { type Dispatcher, Pool } from 'undici'

const pool = new Pool(process.argv[2] ?? '')
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'transfer-encoding', 'upgrade', 'te', 'trailer', 'expect'])

const DISCONNECTED = new Error('the client has disconnected')

const server = createServer((request, response) => {
  const { url: path = '/', method = 'GET', rawHeaders } = request
  const headers = rawHeaders.filter((_, at) => !HOP_BY_HOP.has((rawHeaders[at - (at % 2)] ?? '').toLowerCase()))
  pool.dispatch(
    { path, method: method as Dispatcher.HttpMethod, headers, body: method === 'GET' ? null : request },
    {
      onRequestStart: (controller) => {
        response.once('close', () => {
          if (!response.writableEnded) controller.abort(DISCONNECTED)
        })
      },
      onResponseStart: (_controller, status, answered) => {
        const kept = Object.entries(answered).filter(([name]) => !HOP_BY_HOP.has(name))
        response.writeHead(status, Object.fromEntries(kept))
      },
      onResponseData: (controller, chunk) => {
        if (response.write(chunk)) return
        controller.pause()
        response.once('drain', () => controller.resume())
      },
      onResponseEnd: () => void response.end(),
      onResponseError: () => void response.destroy(),
    },
  )
})
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (typeof address === 'object') process.stdout.write(`http://127.0.0.1:${address?.port}\n`)
})
process.on('SIGTERM', () => process.exit(0))
