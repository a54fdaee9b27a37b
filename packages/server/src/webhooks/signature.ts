// Signature of webhook events: HMAC-SHA256 over the send time and the body, so receivers can detect forgery and replay.

import { createHmac } from 'node:crypto'

export const SIGNATURE_HEADER = 'sluice-signature'

/** `t=1893456000,v1=5f2b…`, signed over the time in epoch seconds, a dot, and the body. */
export function signature(secret: string, epochSeconds: number, body: string): string {
  const signed = createHmac('sha256', secret).update(`${epochSeconds}.${body}`).digest('hex')
  return `t=${epochSeconds},v1=${signed}`
}
