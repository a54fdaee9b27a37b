// What is done to a Response on its way out, whatever it is: fresh, received over the network, a stream, an upgrade.

import type { HeaderRecord } from './headers.ts'

/** A response that came over the network refuses to be changed and is copied; a protocol switch is left as it is. */
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

/** The same response; `done` is called once its body has been sent, has failed, or is no longer wanted. */
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
