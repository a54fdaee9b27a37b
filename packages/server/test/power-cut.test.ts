import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { fillWithEmptyDatabase, temporaryFolder } from './databases.ts'
import { type Running, start } from './process.ts'
import { ADMIN_TOKEN, clientOf } from './service.ts'

const MODEL = pathToFileURL(fileURLToPath(new URL('./fixtures/power-cut.mjs', import.meta.url))).href
const RULES = '/api/v1/rate-limit/rules'

type Machine = { readonly dataDir: string; readonly disk: string }

function startOn({ dataDir, disk }: Machine): Promise<Running> {
  const model = { NODE_OPTIONS: `--import ${MODEL}`, POWER_CUT_FOLDER: dataDir, POWER_CUT_DISK: disk }
  return start(['--admin-token', ADMIN_TOKEN], { SLUICE_DATA_DIR: dataDir, ...model })
}

const machine = (): Machine => ({ dataDir: temporaryFolder(), disk: temporaryFolder() })

function addRule({ address }: Running, rule_id: string) {
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' }
  const body = JSON.stringify({ rule_id, scope: 'per_user', limit: 5, window: '1m' })
  return clientOf(address).send(RULES, { method: 'POST', headers, body })
}

async function hasRule({ address }: Running, rule_id: string): Promise<boolean> {
  const { status } = await clientOf(address).get(`${RULES}/${rule_id}`, ADMIN_TOKEN)
  return status === 200
}

/** A node on a copy of the data folder as it was on disk. */
function afterPowerCut({ dataDir, disk }: Machine): Machine {
  const next = machine()
  restore(disk, statSync(dataDir).ino, next.dataDir)
  return next
}

function restore(disk: string, folder: number, to: string): void {
  mkdirSync(to, { recursive: true, mode: 0o700 })
  const list = existsSync(join(disk, `${folder}`)) ? readFileSync(join(disk, `${folder}`), 'utf8') : '[]'
  for (const [name, inode, isFolder] of JSON.parse(list) as [string, number, boolean][]) {
    const [kept, path] = [join(disk, `${inode}`), join(to, name)]
    if (isFolder) restore(disk, inode, path)
    else if (existsSync(kept)) copyFileSync(kept, path)
    else writeFileSync(path, '')
  }
}

async function ended(node: Running, signal: NodeJS.Signals): Promise<void> {
  node.signal(signal)
  await node.ended()
}

describe.runIf(process.platform === 'linux')('the embedded database', { timeout: 180_000 }, () => {
  test('keeps an acknowledged change through a power cut, while it runs and after it has stopped', async () => {
    const first = machine()
    const node = await startOn(first)
    expect((await addRule(node, 'first')).status).toBe(201)
    await ended(node, 'SIGKILL')

    const second = afterPowerCut(first)
    const recovered = await startOn(second)
    expect(await hasRule(recovered, 'first')).toBe(true)
    expect((await addRule(recovered, 'second')).status).toBe(201)
    await ended(recovered, 'SIGTERM')

    const third = await startOn(afterPowerCut(second))
    expect([await hasRule(third, 'first'), await hasRule(third, 'second')]).toEqual([true, true])
  })

  test('acknowledges nothing after a failed fsync, and recovers when it is restarted', async () => {
    const only = machine()
    await fillWithEmptyDatabase(only.dataDir) // the other test covers a database that is created here
    const node = await startOn(only)
    expect((await addRule(node, 'before')).status).toBe(201)
    writeFileSync(join(only.disk, 'broken'), '')
    expect((await addRule(node, 'during')).status).toBe(503)
    rmSync(join(only.disk, 'broken'))
    expect((await addRule(node, 'after')).status).toBe(503)
    await ended(node, 'SIGKILL')
    const again = await startOn(afterPowerCut(only))
    expect(await hasRule(again, 'before')).toBe(true)
    expect((await addRule(again, 'after')).status).toBe(201)
  })
})
