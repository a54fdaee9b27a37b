// Request ids that carry a receipt: `<request id>.<sealed>`. The receipt is encrypted and authenticated (AES-256-GCM)
// with a key that all nodes of one store share, so any of them can redeem it, nobody can forge or change it, and no
// client key can be read off an id in a log.

import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'
import { readVoucher, type Voucher, voucherText } from './receipt-text.ts'

/** As long as a request_id may be. */
const ID_LENGTH_MAX = 1024
const SEALED = /^([0-9a-z]{2,32}-[0-9a-z]{1,16})\.([\w-]{40,})$/
const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16

export type OpenedId = Voucher & { readonly requestId: string }

/** The keys that ids may have been sealed with; the first one seals. */
export type Keys = { readonly all: readonly Buffer[] }

/** Undefined where the id would be too long, or the request has a name that does not look like ours. */
export function sealId(requestId: string, voucher: Voucher, { all: [key] }: Keys): string | undefined {
  if (key === undefined) return undefined
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(CIPHER, keyOf(key, requestId), nonce)
  const sealed = Buffer.concat([
    nonce,
    cipher.update(voucherText(voucher), 'utf8'),
    cipher.final(),
    cipher.getAuthTag(),
  ])
  const id = `${requestId}.${sealed.toString('base64url')}`
  return id.length <= ID_LENGTH_MAX && SEALED.test(id) ? id : undefined
}

/** Undefined when it was not sealed with one of the keys, or was changed. */
export function openId(id: string, { all }: Keys): OpenedId | undefined {
  const [, requestId = '', text = ''] = SEALED.exec(id) ?? []
  const sealed = Buffer.from(text, 'base64url')
  if (requestId === '' || sealed.length <= NONCE_BYTES + TAG_BYTES) return undefined
  for (const key of all) {
    const opened = unseal(sealed, keyOf(key, requestId))
    const voucher = opened === undefined ? undefined : readVoucher(opened)
    if (voucher !== undefined) return { ...voucher, requestId }
  }
  return undefined
}

/** Whether an id looks like one that carries a receipt. */
export function isSealedId(id: string): boolean {
  return SEALED.test(id)
}

/** The id by which decisions are known: that of an id with a receipt is in front. */
export function plainId(id: string): string {
  return SEALED.exec(id)?.[1] ?? id
}

/** Another key for each request: random nonces of one key would repeat some time. It also binds the id in front. */
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
