// How a receiver knows that an event is ours and new: HMAC-SHA256 of the time of sending and the body.

import { createHmac } from 'node:crypto'

export const SIGNATURE_HEADER = 'sluice-signature'

/** `t=1893456000,v1=5f2b…`: what is signed is the time in epoch seconds, a dot, and the body. */
export function signature(secret: string, epochSeconds: number, body: string): string {
  const signed = createHmac('sha256', secret).update(`${epochSeconds}.${body}`).digest('hex')
  return `t=${epochSeconds},v1=${signed}`
}
