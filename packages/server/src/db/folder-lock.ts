// Lock file of a data folder: two processes on one embedded database would lose rows. Takes over the lock of a dead
// process, but not a lock from another machine, because it cannot check that process.

import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'

export type FolderLock = { release(): void }

/** An unparsable lock may be half written. After a second of retries it counts as stale. */
const RETRIES_MAX = 50
const RETRY_MS = 20

type Holder = { readonly pid: number; readonly started: string; readonly host: string }

/** Throws if another process holds the lock. */
export function lockFolder(folder: string): FolderLock {
  const path = join(folder, 'lock')
  const mine = JSON.stringify(holderOf(process.pid))
  for (let retries = 0; !tryCreate(path, mine); retries += 1) {
    const found = readLock(path)
    if (found === undefined) continue // just released
    const holder = parseHolder(found)
    if (holder !== undefined && isAlive(holder)) throw new FolderInUse(folder, path, holder)
    if (holder === undefined && retries < RETRIES_MAX) pause(RETRY_MS)
    else removeStale(path, found)
  }
  return {
    release: () => {
      if (readLock(path) === mine) rmSync(path, { force: true })
    },
  }
}

class FolderInUse extends Error {
  override readonly name = 'FolderInUse'

  constructor(folder: string, lock: string, { pid, host }: Holder) {
    const elsewhere =
      host === hostname() ? '' : ` on the machine ${host} (if that machine no longer exists, delete ${lock})`
    super(
      `the data folder ${folder} is in use by process ${pid}${elsewhere}: stop it,` +
        ' use another folder with --data-dir, or share the rules with --database',
    )
  }
}

function tryCreate(path: string, content: string): boolean {
  try {
    writeFileSync(path, content, { flag: 'wx', mode: 0o600 })
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function readLock(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** Undefined if the lock is half written. */
function parseHolder(text: string): Holder | undefined {
  try {
    const { pid, started, host } = JSON.parse(text) as Partial<Holder>
    return { pid: Number(pid ?? 0), started: String(started), host: String(host) }
  } catch {
    return undefined
  }
}

/** Blocking is fine: nothing else runs before the folder is locked. */
function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

function isAlive(holder: Holder): boolean {
  if (holder.host !== hostname()) return true
  if (holder.pid === 0) return false
  try {
    process.kill(holder.pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
  return holderOf(holder.pid).started === holder.started && !isZombie(holder.pid)
}

/** Restores the lock if another process has replaced the stale one in the meantime. */
function removeStale(path: string, stale: string): void {
  const renamed = `${path}.${process.pid}`
  try {
    renameSync(path, renamed)
    if (readLock(renamed) !== stale) linkSync(renamed, path)
  } catch {
    // Another process removed it first.
  }
  rmSync(renamed, { force: true })
}

/** Includes the start time, because process ids are reused, in containers immediately. */
function holderOf(pid: number): Holder {
  return { pid, started: startOf(pid), host: hostname() }
}

/** Exited, but not reaped by its parent, which in a container may never happen. */
function isZombie(pid: number): boolean {
  return /\) [ZX] /.test(statOf(pid))
}

function statOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return '' // not Linux
  }
}

function startOf(pid: number): string {
  try {
    const stat = statOf(pid)
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return `${boot} ${stat.slice(stat.lastIndexOf(')')).split(' ')[20]}`
  } catch {
    return 'unknown' // not Linux: identify the process by its id alone
  }
}
