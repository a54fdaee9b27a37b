// Slot of a key in a Redis Cluster: CRC16 (XMODEM) of its hash tag, modulo 16,384.

import { utf8 } from '../sha-256.ts'

export const SLOTS = 16_384
const POLYNOMIAL = 0x1021

const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ POLYNOMIAL : crc << 1
  return crc
})

export function slotOf(key: string): number {
  return crc16(tagOf(key)) % SLOTS
}

/** Text between the first opening brace and the next closing one; the whole key if that is empty. */
function tagOf(key: string): string {
  const start = key.indexOf('{')
  const end = start < 0 ? -1 : key.indexOf('}', start + 1)
  return end > start + 1 ? key.slice(start + 1, end) : key
}

function crc16(text: string): number {
  let crc = 0
  for (const byte of utf8(text)) crc = ((crc << 8) & 0xffff) ^ (TABLE[(crc >> 8) ^ byte] as number)
  return crc
}
