// Writes one JSON line per event to stderr. Client keys appear as keyed hashes only, which cannot be reversed without
// the secret.

import { createHmac, randomBytes } from 'node:crypto'
import { type DestinationStream, pino } from 'pino'
import type { DecidingBucket } from 'sluice'
import { LOG_EVENTS, type LogEvent, type LogEventSpec, type LogFields } from './log-events.ts'
import type { Settings } from './settings/settings.ts'
import { safeOutput } from './text/escaped.ts'
import { workerNumber } from './worker-number.ts'

export type Log = {
  /** Logs an event at its level, with exactly its fields. */
  event<E extends LogEvent>(event: E, fields: LogFields<E>): void
  isLevelEnabled(level: string): boolean
}

const STDERR = 2
export const HASH_DIGITS = 16

export function createLog(level: Settings['logLevel'], destination: DestinationStream = pino.destination(STDERR)): Log {
  const formatters = { level: (label: string) => ({ level: label }) }
  const worker = workerNumber()
  const base = { service: 'sluice', ...(worker === 0 ? {} : { worker, pid: process.pid }) }
  // Values of clients and rules: JSON escapes C0 controls only, and the reader may be a terminal.
  const lines = { write: (line: string) => destination.write(safeOutput(line, false)) }
  const logger = pino({ level, base, timestamp: pino.stdTimeFunctions.isoTime, formatters }, lines)
  return {
    event: (event, fields) => {
      const { level, message }: LogEventSpec = LOG_EVENTS[event]
      logger[level]({ event, ...(fields as object) }, message)
    },
    isLevelEnabled: (name) => logger.isLevelEnabled(name),
  }
}

/** Counts calls, and reports their number at once, then at most once a minute. */
export function oncePerMinute(
  report: (count: number) => void,
  nowMs: () => number = () => performance.now(),
): () => void {
  let count = 0
  let reportedMs = Number.NEGATIVE_INFINITY
  return () => {
    count += 1
    if (nowMs() - reportedMs < 60_000) return
    reportedMs = nowMs()
    report(count)
    count = 0
  }
}

export type KeyHash = (fact: string, value: string) => string

/** The fact is part of the hashed text: equal user and address have different hashes. */
export function keyHash(secret: string = randomBytes(32).toString('hex')): KeyHash {
  return (fact, value) => createHmac('sha256', secret).update(`${fact}:${value}`).digest('hex').slice(0, HASH_DIGITS)
}

/** Hash of a bucket's key: hash of the owner, and after a dot that of the detail. */
export function bucketHash(hash: KeyHash, { fact, owner, detail }: BucketFacts): string {
  return hash(fact, owner) + (detail === '' ? '' : `.${hash('detail', detail)}`)
}

type BucketFacts = Pick<DecidingBucket, 'fact' | 'owner' | 'detail'>
