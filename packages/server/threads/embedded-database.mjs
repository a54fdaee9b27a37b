// The thread in which the embedded database lives, because it holds up its event loop for as long as a query takes. It
// answers one message after the other: { id, sql, parameters } → { id, rows } or { id, error }.

import { parentPort, workerData } from 'node:worker_threads'
import { PGlite } from '@electric-sql/pglite'

const database = new PGlite(workerData.folder)

parentPort.on('message', async (message) => {
  try {
    if (message.close) {
      await database.close()
      parentPort.postMessage({ id: message.id, rows: [] })
    } else if (message.channel !== undefined) {
      const quoted = `"${message.channel.replaceAll('"', '""')}"`
      await database.listen(quoted, () => parentPort.postMessage({ notified: message.channel }))
      parentPort.postMessage({ id: message.id, rows: [] })
    } else parentPort.postMessage({ id: message.id, rows: await rowsOf(message) })
  } catch (error) {
    parentPort.postMessage({ id: message.id, error: { message: error.message, code: error.code } })
  }
})

async function rowsOf({ sql, parameters }) {
  if (parameters !== undefined) return (await database.query(sql, parameters)).rows
  const results = await database.exec(sql)
  return results.at(-1)?.rows ?? []
}
