// Creates the folder of the embedded database, whole or not at all: the program makes it under another name and
// writes it to the disk before it is renamed, so that neither a crash nor a power cut leaves half of one.

import { spawn } from 'node:child_process'
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const PROGRAM = fileURLToPath(new URL('../../threads/create-database.mjs', import.meta.url))
const UNFINISHED = '.new-'
/** The end of an error output names the error. */
const TOLD_MAX = 2000

/** Does nothing if the folder exists. The caller holds the lock of the data folder. */
export async function createDatabase(folder: string): Promise<void> {
  if (existsSync(folder)) return
  const [dataDir, name] = [dirname(folder), basename(folder)]
  for (const entry of readdirSync(dataDir)) {
    if (entry.startsWith(name + UNFINISHED)) rmSync(join(dataDir, entry), { recursive: true, force: true })
  }
  const unfinished = `${folder}${UNFINISHED}${process.pid}`
  await run(unfinished)
  renameSync(unfinished, folder)
}

function run(folder: string): Promise<void> {
  const child = spawn(process.execPath, [PROGRAM, folder], { stdio: ['ignore', 'ignore', 'pipe'] })
  let told = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    told = (told + text).slice(-TOLD_MAX)
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      if (code === 0) resolve()
      else reject(new Error(`the embedded database cannot be created in ${folder}: ${told.trim() || (signal ?? code)}`))
    })
  })
}
