// The body of a request on its way to the service. A client that sends it drop by drop would hold a connection to the
// service, and a permit, for as long as it likes; one that is fast enough may send for hours.

import type { GatewayRequest } from './request-head.ts'

const BYTES_PER_SECOND_MIN = 240

/**
 * Calls `onSlow` once both halves of a window were slow: one alone may be a pause of this process. Call it only when
 * something reads the body, because a listener for its data would make it flow.
 */
export function watchUpload(request: GatewayRequest, windowMs: number, onSlow: () => void): void {
  const bytesMin = (BYTES_PER_SECOND_MIN * windowMs) / 2000
  let bytes = 0
  let isHeldUp = false
  let slowHalves = 0
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
  })
  // The service does not keep up: the client is not to blame.
  request.on('pause', () => {
    isHeldUp = true
  })
  const look = () => {
    slowHalves = bytes < bytesMin && !isHeldUp && !request.isPaused() ? slowHalves + 1 : 0
    bytes = 0
    isHeldUp = false
    if (slowHalves === 2) onSlow()
    else timer = setTimeout(look, windowMs / 2)
  }
  let timer = setTimeout(look, windowMs / 2)
  for (const event of ['end', 'close']) request.once(event, () => clearTimeout(timer))
}
