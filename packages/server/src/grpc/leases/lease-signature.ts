// Leases as text that the remote node carries, signed with the key of receipts: any node of the service accepts them
// back, and none has to remember them. A return replaces the lease by one with the units that are left; each of these
// is accepted once, because its id is the idempotency key of the return. Not encrypted: the node that holds a lease
// sent what is in it.

import { createHmac, timingSafeEqual } from 'node:crypto'
import type { LimitName } from 'sluice'

export type Lease = {
  /** Unique; the same for all leases that replace this one. */
  readonly id: string
  /** Number of returns so far. */
  readonly returns: number
  /** Caller that it was issued to. */
  readonly caller: string
  readonly name: LimitName
  readonly facts: Readonly<Record<string, string>>
  readonly fingerprint: string
  /** Units that can be returned, and those of them on lease. */
  readonly units: number
  readonly onLease: number
  readonly bookedUs: number
}

type Keys = { readonly all: readonly Buffer[] }

const VERSION = 1
/** 22 characters of base64url: 128 bits. */
const SIGNATURE_LENGTH = 22

export function signLease(lease: Lease, { all: [key] }: Keys): string {
  if (key === undefined) return ''
  const { id, returns, caller, name, facts, fingerprint, units, onLease, bookedUs } = lease
  const { ruleId, name: limit, plan = null, byIp } = name
  const fields = [VERSION, id, returns, caller, ruleId, limit, plan, byIp, facts, fingerprint, units, onLease, bookedUs]
  const text = JSON.stringify(fields)
  return signatureOf(text, key) + text
}

/** Returns the lease; undefined if it was not signed with one of the keys. */
export function verifyLease(signed: string, { all }: Keys): Lease | undefined {
  const signature = Buffer.from(signed.slice(0, SIGNATURE_LENGTH))
  const text = signed.slice(SIGNATURE_LENGTH)
  const isSigned = (key: Buffer) => {
    const expected = Buffer.from(signatureOf(text, key))
    return expected.length === signature.length && timingSafeEqual(expected, signature)
  }
  if (!all.some(isSigned)) return undefined
  const [version, ...fields] = JSON.parse(text) as unknown[] // only this file signs such texts
  if (version !== VERSION) return undefined
  const [id, returns, caller, ruleId, limit, plan, byIp, facts, fingerprint, units, onLease, bookedUs] = fields
  const name = { ruleId, name: limit, plan: plan ?? undefined, byIp }
  return { id, returns, caller, name, facts, fingerprint, units, onLease, bookedUs } as Lease
}

/** The prefix separates leases from other texts that the key signs. */
function signatureOf(text: string, key: Buffer): string {
  return createHmac('sha256', key).update('lease ').update(text).digest('base64url').slice(0, SIGNATURE_LENGTH)
}
