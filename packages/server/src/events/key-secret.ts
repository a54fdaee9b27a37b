// Secret that hashes client keys in events: --key-secret, or a generated one in a file of the data folder that only its
// owner can read. The database and ClickHouse hold a fingerprint of it, never the secret.

import { createHmac, randomBytes } from 'node:crypto'
import { existsSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Database } from '../db/database.ts'

const FILE = 'key-secret'
const SECRET_BYTES = 32
const LENGTH_MIN = 16
const FINGERPRINT_DIGITS = 16

export function readKeySecret(configured: string | undefined, dataDir: string): string {
  if (configured !== undefined) return configured
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  const path = join(dataDir, FILE)
  if (!existsSync(path)) createFile(path, randomBytes(SECRET_BYTES).toString('hex'))
  const secret = readFileSync(path, 'utf8').trim()
  if (secret.length < LENGTH_MIN) throw new Error(`${path} is damaged: restore it, or delete it to create a new secret`)
  return secret
}

/** The file appears with its content, so that another worker never reads half of it. The first one wins. */
function createFile(path: string, secret: string): void {
  const draft = `${path}.${randomBytes(8).toString('hex')}`
  try {
    writeFileSync(draft, secret, { flag: 'wx', mode: 0o600 })
    linkSync(draft, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    rmSync(draft, { force: true })
  }
}

/** Whether a shared store of events has the fingerprint of this secret: the first node that asks decides. */
export type CompareSecret = (fingerprint: string) => Promise<boolean>

/** Compares with the other nodes of a database. An embedded database has none, so its secret may change. */
export function compareIn(queries: Pick<Database, 'query' | 'kind'>): CompareSecret {
  const isAlone = queries.kind === 'embedded'
  const known = isAlone ? '(only_row) DO UPDATE SET fingerprint = EXCLUDED.fingerprint' : 'DO NOTHING'
  return async (fingerprint) => {
    await queries.query(`INSERT INTO key_fingerprint (fingerprint) VALUES ($1) ON CONFLICT ${known}`, [fingerprint])
    const [row] = await queries.query<{ fingerprint: string }>('SELECT fingerprint FROM key_fingerprint', [])
    return row?.fingerprint === fingerprint
  }
}

/** Whether the secret differs from that of other nodes; false until the shared store has answered. */
export class SecretComparison {
  readonly #compare: () => Promise<boolean>
  #isShared: boolean | undefined
  #running: Promise<void> | undefined

  constructor(compare: CompareSecret, secret: string) {
    const fingerprint = createHmac('sha256', secret).update('fingerprint').digest('hex').slice(0, FINGERPRINT_DIGITS)
    this.#compare = () => compare(fingerprint)
  }

  /** Asks again if there was no answer yet: the store may be down when the node starts. */
  get isForeign(): boolean {
    void this.settled()
    return this.#isShared === false
  }

  /** Resolves when the store has answered or failed. */
  settled(): Promise<void> {
    if (this.#isShared !== undefined) return Promise.resolve()
    this.#running ??= this.#compare()
      .then(
        (isShared) => {
          this.#isShared = isShared
        },
        () => {},
      )
      .finally(() => {
        this.#running = undefined
      })
    return this.#running
  }
}
