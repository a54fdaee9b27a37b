// One process at a time for a data folder: two on one embedded database would lose rows. A lock whose process has died
// is taken over; one that was made on another machine is not, because nobody can tell from here.

import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'

export type FolderLock = { release(): void }

/** A lock that cannot be read is being written: for a second. Then it was left by a process that died meanwhile. */
const LOOKS_MAX = 50
const LOOK_AGAIN_MS = 20

type Holder = { readonly pid: number; readonly started: string; readonly host: string }

/** Throws when somebody else holds it. */
export function lockFolder(folder: string): FolderLock {
  const path = join(folder, 'lock')
  const mine = JSON.stringify(holderOf(process.pid))
  for (let looks = 0; !tryCreate(path, mine); looks += 1) {
    const found = readLock(path)
    if (found === undefined) continue // released at this very moment
    const holder = parseHolder(found)
    if (holder !== undefined && isAlive(holder)) throw new FolderInUse(folder, path, holder)
    if (holder === undefined && looks < LOOKS_MAX) pause(LOOK_AGAIN_MS)
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
    const elsewhere = host === hostname() ? '' : ` of the machine ${host} (if that one is gone, delete ${lock})`
    super(
      `the data folder ${folder} is in use by process ${pid}${elsewhere}: give another one with --data-dir,` +
        ' or share the rules with --database',
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

/** Undefined: somebody is writing it, or died while doing so. */
function parseHolder(text: string): Holder | undefined {
  try {
    const { pid, started, host } = JSON.parse(text) as Partial<Holder>
    return { pid: Number(pid ?? 0), started: String(started), host: String(host) }
  } catch {
    return undefined
  }
}

/** Whoever wants the folder has nothing else to do. */
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

/** Of two that find the same dead lock one might remove the living lock of the other: it is put back then. */
function removeStale(path: string, stale: string): void {
  const aside = `${path}.${process.pid}`
  try {
    renameSync(path, aside)
    if (readLock(aside) !== stale) linkSync(aside, path)
  } catch {
    // Somebody else was faster.
  }
  rmSync(aside, { force: true })
}

/** The number of a process comes back after a while, and in a container at once: when it began tells them apart. */
function holderOf(pid: number): Holder {
  return { pid, started: startOf(pid), host: hostname() }
}

/** It has ended, and whoever started it has not asked how: in a container perhaps never. */
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
    return 'unknown' // not Linux: the number of the process has to do
  }
}
