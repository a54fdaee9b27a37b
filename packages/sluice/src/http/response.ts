// Adds headers and an end callback to a fetch Response of any kind: new, received over the network, stream, upgrade.

import type { HeaderRecord } from './headers.ts'

/** Copies a response whose headers are immutable (received over the network); returns a protocol switch unchanged. */
export function withHeaders(response: Response, headers: Readonly<HeaderRecord>): Response {
  if (response.status < 200) return response
  try {
    setHeaders(response, headers)
    return response
  } catch {
    const copy = new Response(response.body, response)
    setHeaders(copy, headers)
    return copy
  }
}

/** Calls `done` once the body was sent, failed or was cancelled. */
export function withEnd(response: Response, done: () => void): Response {
  if (response.body === null) {
    done()
    return response
  }
  const reader = response.body.getReader()
  const body = new ReadableStream({
    async pull(controller) {
      const chunk = await reader.read().catch((error: unknown) => {
        done()
        throw error
      })
      if (!chunk.done) return controller.enqueue(chunk.value)
      done()
      controller.close()
    },
    cancel(reason) {
      done()
      return reader.cancel(reason)
    },
  })
  return new Response(body, response)
}

function setHeaders(response: Response, headers: Readonly<HeaderRecord>): void {
  for (const name in headers) response.headers.set(name, headers[name] ?? '')
}
