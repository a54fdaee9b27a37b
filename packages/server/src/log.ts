// One JSON line per event on stderr (stdout belongs to people). A client key never reaches a log: only its keyed hash
// does, which tells clients apart and cannot be turned back without the secret.

import { createHmac, randomBytes } from 'node:crypto'
import { type DestinationStream, type Logger, pino } from 'pino'
import type { DecidingBucket } from 'sluice'
import type { Settings } from './settings/settings.ts'
import { workerNumber } from './workers/node-workers.ts'

export type Log = Logger

const STDERR = 2
const HASH_DIGITS = 16

export function createLog(level: Settings['logLevel'], destination: DestinationStream = pino.destination(STDERR)): Log {
  const formatters = { level: (label: string) => ({ level: label }) }
  const worker = workerNumber()
  const base = { service: 'sluice', ...(worker === 0 ? {} : { worker, pid: process.pid }) }
  return pino({ level, base, timestamp: pino.stdTimeFunctions.isoTime, formatters }, destination)
}

export type KeyHash = (fact: string, value: string) => string

/** The fact is part of what is hashed: the same text as user and as address gives two hashes. */
export function keyHash(secret: string = randomBytes(32).toString('hex')): KeyHash {
  return (fact, value) => createHmac('sha256', secret).update(`${fact}:${value}`).digest('hex').slice(0, HASH_DIGITS)
}

/** Whose bucket it is, as logs know them: the hash of the first fact of the key; behind a dot, that of the others. */
export function bucketHash(hash: KeyHash, { fact, owner, detail }: BucketFacts): string {
  return hash(fact, owner) + (detail === '' ? '' : `.${hash('detail', detail)}`)
}

type BucketFacts = Pick<DecidingBucket, 'fact' | 'owner' | 'detail'>
