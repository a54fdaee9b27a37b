// Thread of the embedded database, which blocks its event loop during a query. Handles one message at a time:
// { id, sql, parameters } → { id, rows } or { id, error }. Replies to a commit after its WAL is on disk.

import { dirname } from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import { PGlite } from '@electric-sql/pglite'
import { SyncedFiles, syncPath } from './synced-files.mjs'

const SETTINGS = [
  'wal_sync_method=fsync',
  // Shared memory is zeroed at the start and stays resident. The tables are small, and the kernel caches their files.
  'shared_buffers=4MB',
  'max_connections=10', // one is used
]
const WAL_BYTES = 'SELECT (pg_current_wal_lsn() - redo_lsn)::float8 AS bytes FROM pg_control_checkpoint()'

// The names of the database folder and of the data folder, either of which may be new.
syncPath(dirname(workerData.folder))
syncPath(dirname(dirname(workerData.folder)))
const files = new SyncedFiles(workerData.folder, (error) => {
  parentPort.postMessage({ failed: `fsync failed: ${error.message}` })
  process.exit(1) // ends this thread only; pending messages get no reply
})
const startParams = [
  ...PGlite.defaultStartParams.filter((parameter) => parameter !== '-F'), // -F: never call fsync
  ...SETTINGS.flatMap((setting) => ['-c', setting]),
]
const database = new PGlite({ fs: files, startParams })

parentPort.on('message', async (message) => {
  const answer = await answerTo(message).catch((error) => ({ error: { message: error.message, code: error.code } }))
  parentPort.postMessage({ id: message.id, ...answer })
})

async function answerTo(message) {
  if (message.close) {
    await database.close()
    return { rows: [] }
  }
  if (message.channel !== undefined) {
    const quoted = `"${message.channel.replaceAll('"', '""')}"`
    await database.listen(quoted, () => parentPort.postMessage({ notified: message.channel }))
    return { rows: [] }
  }
  return { rows: await rowsOf(message) }
}

// Without a postmaster, PostgreSQL makes checkpoints only at shutdown, and the WAL would grow until then.
const { checkpointMs = 60_000, checkpointBytes = 33_554_432 } = workerData
setTimeout(checkpoint, checkpointMs).unref()

async function checkpoint() {
  try {
    const { rows } = await database.query(WAL_BYTES)
    if (rows[0].bytes > checkpointBytes) await database.exec('CHECKPOINT')
  } catch {
    // Closed, or in a failed transaction: retried at the next interval.
  }
  setTimeout(checkpoint, checkpointMs).unref()
}

async function rowsOf({ sql, parameters }) {
  if (parameters !== undefined) return (await database.query(sql, parameters)).rows
  const results = await database.exec(sql)
  return results.at(-1)?.rows ?? []
}
