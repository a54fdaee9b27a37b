// SHA-256 and HMAC-SHA-256 of text, in hexadecimal, that return at once in every runtime: some lack node:crypto, and
// crypto.subtle returns promises.

type NodeCrypto = typeof import('node:crypto')

/** Several times as fast as the functions below. Not imported: Workers and browsers lack it. */
const native = globalThis.process?.getBuiltinModule?.('node:crypto') as NodeCrypto | undefined

export function sha256(text: string): string {
  return native === undefined ? portableSha256(text) : native.createHash('sha256').update(text).digest('hex')
}

/** `utf16le` keeps unpaired surrogates apart. */
export function hmacSha256(key: string, text: string, encoding: 'utf8' | 'utf16le'): string {
  if (native === undefined) return portableHmacSha256(key, text, encoding)
  return native.createHmac('sha256', key).update(text, encoding).digest('hex')
}

export function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

export function portableSha256(text: string): string {
  return hex(digestOf(utf8(text)))
}

export function portableHmacSha256(key: string, text: string, encoding: 'utf8' | 'utf16le'): string {
  const bytes = utf8(key)
  const block = new Uint8Array(BLOCK_BYTES)
  block.set(bytes.length > BLOCK_BYTES ? digestOf(bytes) : bytes)
  const keyed = (pad: number, message: Uint8Array) =>
    digestOf(Uint8Array.from([...block.map((byte) => byte ^ pad), ...message]))
  return hex(keyed(0x5c, keyed(0x36, encoding === 'utf8' ? utf8(text) : utf16le(text))))
}

function utf16le(text: string): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(text.length * 2))
  for (let index = 0; index < text.length; index += 1) bytes.setUint16(index * 2, text.charCodeAt(index), true)
  return new Uint8Array(bytes.buffer)
}

const BLOCK_BYTES = 64
const ROUNDS = 64
const PRIMES = firstPrimes(ROUNDS)
const ROUND_KEYS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)))
const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)))

function digestOf(message: Uint8Array): Uint8Array {
  // The message, a 1 bit, zeros, and the length in bits as the last 64 bits of a block.
  const padded = new Uint8Array(Math.ceil((message.length + 9) / BLOCK_BYTES) * BLOCK_BYTES)
  padded.set(message)
  padded[message.length] = 0x80
  const blocks = new DataView(padded.buffer)
  blocks.setBigUint64(padded.length - 8, BigInt(message.length) * 8n)
  const hash = Int32Array.from(START)
  for (let offset = 0; offset < padded.length; offset += BLOCK_BYTES) compress(hash, blocks, offset)
  const digest = new DataView(new ArrayBuffer(hash.byteLength))
  for (const [index, word] of hash.entries()) digest.setInt32(index * 4, word)
  return new Uint8Array(digest.buffer)
}

/** The compression function of FIPS 180-4, with its names. Indexes are within the arrays. */
function compress(hash: Int32Array, blocks: DataView, offset: number): void {
  const words = new Int32Array(ROUNDS)
  for (let t = 0; t < ROUNDS; t += 1) words[t] = t < 16 ? blocks.getInt32(offset + t * 4) : expanded(words, t)
  let [a, b, c, d, e, f, g, h] = [...hash] as [number, number, number, number, number, number, number, number]
  for (let t = 0; t < ROUNDS; t += 1) {
    const sum1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)
    const choice = (e & f) ^ (~e & g)
    const first = (h + sum1 + choice + (ROUND_KEYS[t] as number) + (words[t] as number)) | 0
    const sum0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)
    const majority = (a & b) ^ (a & c) ^ (b & c)
    h = g
    g = f
    f = e
    e = (d + first) | 0
    d = c
    c = b
    b = a
    a = (first + sum0 + majority) | 0
  }
  for (const [index, word] of [a, b, c, d, e, f, g, h].entries()) hash[index] = (hash[index] as number) + word
}

function expanded(words: Int32Array, t: number): number {
  const before15 = words[t - 15] as number
  const before2 = words[t - 2] as number
  const sigma0 = rotated(before15, 7) ^ rotated(before15, 18) ^ (before15 >>> 3)
  const sigma1 = rotated(before2, 17) ^ rotated(before2, 19) ^ (before2 >>> 10)
  return (words[t - 16] as number) + sigma0 + (words[t - 7] as number) + sigma1
}

function rotated(word: number, bits: number): number {
  return (word >>> bits) | (word << (32 - bits))
}

/** First 32 bits after the point. */
function fraction(number: number): number {
  return Math.floor((number - Math.floor(number)) * 2 ** 32) | 0
}

function firstPrimes(count: number): number[] {
  const primes: number[] = []
  for (let number = 2; primes.length < count; number += 1) {
    if (primes.every((prime) => number % prime !== 0)) primes.push(number)
  }
  return primes
}
