// Creates the folder of the embedded database atomically: a child process creates it under a temporary name and syncs
// it to disk before it is renamed. Neither a crash nor a power cut leaves a partial database.

import { spawn } from 'node:child_process'
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { PACKAGE_FOLDER } from '../package-facts.ts'

const PROGRAM = fileURLToPath(new URL('threads/create-database.mjs', PACKAGE_FOLDER))
const UNFINISHED = '.new-'
/** Signals that also reach this process and its children: of a terminal, or of systemd. */
const INTERRUPTS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGINT', 'SIGHUP']
/** The error is at the end of the output. */
const OUTPUT_MAX = 2000

/** Does nothing if the folder exists. The caller holds the lock of the data folder. */
export async function createDatabase(folder: string): Promise<void> {
  if (existsSync(folder)) return
  const [dataDir, name] = [dirname(folder), basename(folder)]
  for (const entry of readdirSync(dataDir)) {
    if (entry.startsWith(name + UNFINISHED)) rmSync(join(dataDir, entry), { recursive: true, force: true })
  }
  const unfinished = `${folder}${UNFINISHED}${process.pid}`
  try {
    await run(unfinished)
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true })
    throw error
  }
  renameSync(unfinished, folder)
}

function run(folder: string): Promise<void> {
  const child = spawn(process.execPath, [PROGRAM, folder], { stdio: ['ignore', 'ignore', 'pipe'] })
  let output = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output = (output + text).slice(-OUTPUT_MAX)
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      if (code === 0) resolve()
      else if (signal !== null && INTERRUPTS.includes(signal))
        reject(new Error(`the start was interrupted by ${signal} while it created the embedded database: start again`))
      else reject(new Error(`cannot create the embedded database in ${folder}: ${output.trim() || (signal ?? code)}`))
    })
  })
}
