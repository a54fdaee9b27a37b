// Starts a real etcd for a test: free ports, temporary folder, removed when stopped. Uses the JSON gateway, as the
// etcd rule source does.

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
  /** Compacts the history up to a revision. */
  compact(revision: number): Promise<void>
  /** Sends any request to the gateway, such as `request('/v3/auth/enable', {})`. */
  request(path: string, body: object): Promise<unknown>
  /** Kills it; data stays. */
  down(): Promise<void>
  /** Restarts it on the same ports. */
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
  const request = async (path: string, body: object) => {
    const response = await fetch(client + path, { method: 'POST', body: JSON.stringify(body) })
    if (!response.ok) throw new Error(`etcd answered ${response.status}: ${await response.text()}`)
    return response.json()
  }
  const put = async (values: Readonly<Record<string, string | null>>) => {
    const success = Object.entries(values).map(([key, value]) => {
      if (value === null) return { request_delete_range: { key: base64(key) } }
      return { request_put: { key: base64(key), value: base64(value) } }
    })
    const { header } = (await request('/v3/kv/txn', { success })) as { header: { revision: string } }
    return Number(header.revision)
  }
  await up()
  return {
    ...{ host, request, put, up, down },
    compact: async (revision) =>
      void (await request('/v3/kv/compaction', { revision: String(revision), physical: true })),
    stop: async () => {
      await down()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
