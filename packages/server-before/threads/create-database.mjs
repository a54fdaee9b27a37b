// Creates the folder of an embedded database: `node create-database.mjs <folder>`. A separate process, because initdb
// needs 700 MB, and a thread would leave 200 MB allocated.

import { PGlite } from '@electric-sql/pglite'
import { syncFolder } from './synced-files.mjs'

const [folder] = process.argv.slice(2)
const shared_buffers = 'shared_buffers=8MB'
const database = new PGlite(folder, {
  initDbStartParams: ['-c', shared_buffers],
  startParams: [...PGlite.defaultStartParams, '-c', shared_buffers],
})
await database.waitReady
await database.close()
syncFolder(folder)
process.exit(0)
