// A receipt as short text, and back. What is read may have been written by another version: whatever does not fit is no
// receipt.

import type { Receipt, ReceiptItem } from 'sluice'

/** A receipt, and who made the check. */
export type Voucher = { readonly receipt: Receipt; readonly caller: string }

const VERSION = 1

export function voucherText({ receipt, caller }: Voucher): string {
  const { id, home, op, lastsUs, items } = receipt
  const rows = items.map(({ limit, print, owner, detail, units, bookedUs, leasedUs }) => {
    const heldUs = leasedUs === undefined ? -1 : bookedUs - leasedUs
    return [limit, print, units, bookedUs, heldUs, owner, detail]
  })
  return JSON.stringify([VERSION, id, home, op ?? null, lastsUs, caller, ...rows])
}

export function readVoucher(text: string): Voucher | undefined {
  try {
    const [version, id, home, op, lastsUs, caller, ...rows] = JSON.parse(text) as unknown[]
    if (version !== VERSION || !areTexts(id, home, caller) || !areWhole(lastsUs)) return undefined
    const items = rows.map(readItem)
    if (!items.every((item) => item !== undefined) || !(op === null || areTexts(op))) return undefined
    const receipt = { id, home, op: op ?? undefined, lastsUs, items } as Receipt // all of it was looked at
    return { receipt, caller: caller as string }
  } catch {
    return undefined
  }
}

function readItem(row: unknown): ReceiptItem | undefined {
  if (!Array.isArray(row)) return undefined
  const [limit, print, units, bookedUs, heldUs, owner, detail] = row
  if (!areTexts(limit, print, owner, detail) || !areWhole(units, bookedUs, heldUs)) return undefined
  return { limit, print, owner, detail, units, bookedUs, leasedUs: heldUs < 0 ? undefined : bookedUs - heldUs }
}

function areTexts(...values: unknown[]): boolean {
  return values.every((value) => typeof value === 'string')
}

function areWhole(...values: unknown[]): boolean {
  return values.every(Number.isSafeInteger)
}
