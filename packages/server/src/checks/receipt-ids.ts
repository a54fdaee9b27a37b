// Request ids that carry a receipt: `<request id>.<sealed>`. The receipt is encrypted and authenticated (AES-256-GCM)
// with a key that all nodes of one store share. Any node can redeem it, clients cannot forge or change it, and an id in
// a log reveals no client key.

import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'
import { type IssuedReceipt, parseReceipt, serializeReceipt } from './receipt-text.ts'

/** Maximum length of a request_id. */
const ID_LENGTH_MAX = 1024
const SEALED = /^([0-9a-z]{2,32}-[0-9a-z]{1,16})\.([\w-]{40,})$/
const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16

export type OpenedId = IssuedReceipt & { readonly requestId: string }

/** Keys that ids may have been sealed with. The first one seals new ids. */
export type Keys = { readonly all: readonly Buffer[] }

/** Undefined when the id would be too long, or the request id does not have the format of generated ids. */
export function sealId(requestId: string, issued: IssuedReceipt, { all: [key] }: Keys): string | undefined {
  if (key === undefined) return undefined
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(CIPHER, keyOf(key, requestId), nonce)
  const sealed = Buffer.concat([
    nonce,
    cipher.update(serializeReceipt(issued), 'utf8'),
    cipher.final(),
    cipher.getAuthTag(),
  ])
  const id = `${requestId}.${sealed.toString('base64url')}`
  return id.length <= ID_LENGTH_MAX && SEALED.test(id) ? id : undefined
}

/** Undefined when the id was not sealed with one of the keys, or was changed. */
export function openId(id: string, { all }: Keys): OpenedId | undefined {
  const [, requestId = '', text = ''] = SEALED.exec(id) ?? []
  const sealed = Buffer.from(text, 'base64url')
  if (requestId === '' || sealed.length <= NONCE_BYTES + TAG_BYTES) return undefined
  for (const key of all) {
    const opened = unseal(sealed, keyOf(key, requestId))
    const issued = opened === undefined ? undefined : parseReceipt(opened)
    if (issued !== undefined) return { ...issued, requestId }
  }
  return undefined
}

/** Whether an id has the format of one with a receipt. */
export function isSealedId(id: string): boolean {
  return SEALED.test(id)
}

/** Removes the receipt from an id: decisions are stored under the part before it. */
export function plainId(id: string): string {
  return SEALED.exec(id)?.[1] ?? id
}

/**
 * Derives a key per request: random nonces of a single key would eventually repeat. Also authenticates the request id.
 */
function keyOf(key: Buffer, requestId: string): Buffer {
  return createHmac('sha256', key).update(requestId).digest()
}

function unseal(sealed: Buffer, key: Buffer): string | undefined {
  const end = sealed.length - TAG_BYTES
  const decipher = createDecipheriv(CIPHER, key, sealed.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
  decipher.setAuthTag(sealed.subarray(end))
  try {
    return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, end)), decipher.final()]).toString('utf8')
  } catch {
    return undefined
  }
}
