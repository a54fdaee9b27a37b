// Serialises a receipt as short text and parses it. Text written by another version may not parse.

import type { Receipt, ReceiptItem } from 'sluice'

/** A receipt and the caller of its check. */
export type IssuedReceipt = { readonly receipt: Receipt; readonly caller: string }

const VERSION = 1

export function serializeReceipt({ receipt, caller }: IssuedReceipt): string {
  const { id, issuer, op, ttlUs, items } = receipt
  const rows = items.map(({ limit, fingerprint, owner, detail, units, bookedUs, leasedUs }) => {
    const heldUs = leasedUs === undefined ? -1 : bookedUs - leasedUs
    return [limit, fingerprint, units, bookedUs, heldUs, owner, detail]
  })
  return JSON.stringify([VERSION, id, issuer, op ?? null, ttlUs, caller, ...rows])
}

export function parseReceipt(text: string): IssuedReceipt | undefined {
  try {
    const [version, id, issuer, op, ttlUs, caller, ...rows] = JSON.parse(text) as unknown[]
    if (version !== VERSION || !areTexts(id, issuer, caller) || !areWhole(ttlUs)) return undefined
    const items = rows.map(readItem)
    if (!items.every((item) => item !== undefined) || !(op === null || areTexts(op))) return undefined
    const receipt = { id, issuer, op: op ?? undefined, ttlUs, items } as Receipt // all fields were checked
    return { receipt, caller: caller as string }
  } catch {
    return undefined
  }
}

function readItem(row: unknown): ReceiptItem | undefined {
  if (!Array.isArray(row)) return undefined
  const [limit, fingerprint, units, bookedUs, heldUs, owner, detail] = row
  if (!areTexts(limit, fingerprint, owner, detail) || !areWhole(units, bookedUs, heldUs)) return undefined
  return { limit, fingerprint, owner, detail, units, bookedUs, leasedUs: heldUs < 0 ? undefined : bookedUs - heldUs }
}

function areTexts(...values: unknown[]): boolean {
  return values.every((value) => typeof value === 'string')
}

function areWhole(...values: unknown[]): boolean {
  return values.every(Number.isSafeInteger)
}
