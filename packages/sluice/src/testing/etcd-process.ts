// A real etcd of its own for a test: on free ports, in a temporary folder, gone when stopped. Speaks through the JSON
// gateway, as its users here do.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { childStarted } from './child-started.ts'
import { freePort } from './free-port.ts'

export type EtcdProcess = {
  /** `127.0.0.1:port`, for an address such as `etcd://127.0.0.1:port/prefix`. */
  readonly host: string
  /** Writes all of them in one transaction, null deletes; returns its revision. */
  put(values: Readonly<Record<string, string | null>>): Promise<number>
  /** Forgets what was before a revision. */
  compact(revision: number): Promise<void>
  /** Any request of the gateway: `ask('/v3/auth/enable', {})`. */
  ask(path: string, body: object): Promise<unknown>
  /** Ends it at once; what it holds stays. */
  down(): Promise<void>
  /** Starts it again, on the same ports. */
  up(): Promise<void>
  stop(): Promise<void>
}

const STARTED = /serving insecure client requests/

export async function startEtcd(): Promise<EtcdProcess> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-etcd-'))
  const host = `127.0.0.1:${await freePort()}`
  const [client, peer] = [`http://${host}`, `http://127.0.0.1:${await freePort()}`]
  const args = [
    ...['--data-dir', folder, '--unsafe-no-fsync', '--initial-cluster', `default=${peer}`],
    ...['--listen-client-urls', client, '--advertise-client-urls', client],
    ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
  ]
  let child: ChildProcess
  const up = async () => {
    child = spawn('etcd', args, { stdio: ['ignore', 'ignore', 'pipe'] })
    await childStarted(child, 'etcd', STARTED)
  }
  const down = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const exit = once(child, 'exit')
    child.kill('SIGKILL')
    await exit
  }
  const ask = async (path: string, body: object) => {
    const response = await fetch(client + path, { method: 'POST', body: JSON.stringify(body) })
    if (!response.ok) throw new Error(`etcd answered ${response.status}: ${await response.text()}`)
    return response.json()
  }
  const put = async (values: Readonly<Record<string, string | null>>) => {
    const success = Object.entries(values).map(([key, value]) => {
      if (value === null) return { request_delete_range: { key: base64(key) } }
      return { request_put: { key: base64(key), value: base64(value) } }
    })
    const { header } = (await ask('/v3/kv/txn', { success })) as { header: { revision: string } }
    return Number(header.revision)
  }
  await up()
  return {
    ...{ host, ask, put, up, down },
    compact: async (revision) => void (await ask('/v3/kv/compaction', { revision: String(revision), physical: true })),
    stop: async () => {
      await down()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
