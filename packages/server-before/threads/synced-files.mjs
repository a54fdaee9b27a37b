// Makes fsync of the embedded database real. Emscripten ignores fsync on files of the host unless the file system
// has an `fsync` operation, and always ignores fdatasync: PostgreSQL therefore runs with wal_sync_method=fsync.

import { closeSync, fsyncSync, openSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { NodeFS } from '@electric-sql/pglite/nodefs'

/**
 * `onFailure` must not return. The kernel may drop the pages of a failed fsync, so that no later fsync proves anything,
 * and PGlite does not stop when PostgreSQL panics.
 */
export class SyncedFiles extends NodeFS {
  #onFailure

  constructor(folder, onFailure) {
    super(folder)
    this.#onFailure = onFailure
  }

  async init(database, options) {
    const { emscriptenOpts } = await super.init(database, options)
    const addFsync = (module) => {
      module.NODEFS.stream_ops.fsync = ({ nfd }) => {
        try {
          fsyncSync(nfd)
        } catch (error) {
          this.#onFailure(error)
        }
        return 0
      }
    }
    return { emscriptenOpts: { ...emscriptenOpts, preRun: [...emscriptenOpts.preRun, addFsync] } }
  }
}

/** Writes a folder and everything in it to the disk. */
export function syncFolder(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) syncFolder(path)
    else if (entry.isFile()) syncPath(path)
  }
  syncPath(folder)
}

export function syncPath(path) {
  const file = openSync(path, 'r')
  try {
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}
