// Detects slow uploads, which would occupy an upstream connection and a permit indefinitely. Uploads above the minimum
// rate may take hours.

import type { GatewayRequest } from './request-head.ts'

const BYTES_PER_SECOND_MIN = 240

/**
 * Calls `onSlow` after two consecutive slow half windows; a single one may be a pause of this process. Call only once
 * the body is being read, because adding a `data` listener starts the flow.
 */
export function watchUpload(request: GatewayRequest, windowMs: number, onSlow: () => void): void {
  const bytesMin = (BYTES_PER_SECOND_MIN * windowMs) / 2000
  let bytes = 0
  let wasPaused = false
  let slowHalves = 0
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
  })
  // Paused by back-pressure from the upstream: the client is not slow.
  request.on('pause', () => {
    wasPaused = true
  })
  const measure = () => {
    slowHalves = bytes < bytesMin && !wasPaused && !request.isPaused() ? slowHalves + 1 : 0
    bytes = 0
    wasPaused = false
    if (slowHalves === 2) onSlow()
    else timer = setTimeout(measure, windowMs / 2)
  }
  let timer = setTimeout(measure, windowMs / 2)
  for (const event of ['end', 'close']) request.once(event, () => clearTimeout(timer))
}
