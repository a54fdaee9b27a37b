// Serialises a receipt as short text and parses it. Text written by another version may not parse.

import type { Receipt, ReceiptItem } from 'sluice'

/** A receipt, the caller of its check, and the position of its client in samples of events. */
export type IssuedReceipt = {
  readonly receipt: Receipt
  readonly caller: string
  readonly position: number | undefined
}

/** Version 1 has no position. */
const VERSIONS: readonly unknown[] = [1, 2]
const VERSION = 2
/** Positions are multiples of 2^-32. */
const POSITIONS = 2 ** 32
const NO_POSITION = -1

export function serializeReceipt({ receipt, caller, position }: IssuedReceipt): string {
  const { id, issuer, op, ttlUs, items } = receipt
  const rows = items.map(({ limit, fingerprint, owner, detail, units, bookedUs, leasedUs }) => {
    const heldUs = leasedUs === undefined ? -1 : bookedUs - leasedUs
    return [limit, fingerprint, units, bookedUs, heldUs, owner, detail]
  })
  const place = position === undefined ? NO_POSITION : Math.floor(position * POSITIONS)
  return JSON.stringify([VERSION, id, issuer, op ?? null, ttlUs, caller, place, ...rows])
}

export function parseReceipt(text: string): IssuedReceipt | undefined {
  try {
    const [version, id, issuer, op, ttlUs, caller, ...rest] = JSON.parse(text) as unknown[]
    const [place, ...rows] = version === VERSION ? rest : [NO_POSITION, ...rest]
    if (!VERSIONS.includes(version) || !areTexts(id, issuer, caller) || !areWhole(ttlUs, place)) return undefined
    const items = rows.map(readItem)
    if (!items.every((item) => item !== undefined) || !(op === null || areTexts(op))) return undefined
    const receipt = { id, issuer, op: op ?? undefined, ttlUs, items } as Receipt // all fields were checked
    const position = (place as number) < 0 ? undefined : (place as number) / POSITIONS
    return { receipt, caller: caller as string, position }
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
