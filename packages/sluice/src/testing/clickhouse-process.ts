// Starts a real ClickHouse for a test: free ports, temporary folder, removed when stopped.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { childStarted } from './child-started.ts'
import { freePort } from './free-port.ts'

export type ClickHouseProcess = {
  readonly port: number
  /** `http://127.0.0.1:port`: user `default` without a password. Append a path for another database than `sluice`. */
  readonly url: string
  /** Configuration and data. */
  readonly folder: string
  /** Sends one SQL statement; returns the text of the answer. */
  query(sql: string): Promise<string>
  /** SIGKILL; data stays. */
  kill(): Promise<void>
  /** Starts it again on the same port and folder. */
  restart(): Promise<void>
  /** Freezes the process with SIGSTOP; `thaw` continues it. */
  freeze(): void
  thaw(): void
  stop(): Promise<void>
}

/** A user besides `default`; its password needs escaping in a URL, in XML and in a log. */
export const CLICKHOUSE_USER = 'writer'
export const CLICKHOUSE_PASSWORD = 'pass:w@rd/"&<%'

const READY = /Ready for connections/
const LOCK_FREE_TRIES = 20

/** Returns why ClickHouse cannot be started here, and prints it; undefined if it can. */
export function clickHouseMissing(): string | undefined {
  if (program() !== undefined) return undefined
  const reason = 'clickhouse-server is not installed (Debian: apt-get install clickhouse-server): its tests are skipped'
  process.stderr.write(`sluice: ${reason}\n`)
  return reason
}

export async function startClickHouse(): Promise<ClickHouseProcess> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-clickhouse-'))
  const port = await freePort()
  const config = writeConfig(folder, port, await freePort())
  let child: ChildProcess | undefined
  const restart = async () => {
    child = await launch(config, folder)
  }
  const kill = async () => {
    const running = child
    child = undefined
    if (running === undefined || running.exitCode !== null || running.signalCode !== null) return
    const exit = once(running, 'exit')
    running.kill('SIGKILL')
    await exit
  }
  const abandon = () => {
    child?.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', abandon) // in case the test run is interrupted
  await restart()
  const url = `http://127.0.0.1:${port}`
  const query = async (sql: string) => {
    const response = await fetch(url, { method: 'POST', body: sql })
    const text = await response.text()
    if (!response.ok) throw new Error(`ClickHouse answered ${response.status}: ${text}`)
    return text.trim()
  }
  const stop = async () => {
    await kill() // its data is discarded: no clean shutdown needed
    process.off('exit', abandon)
    await rm(folder, { recursive: true, force: true }) // thousands of small files
  }
  return {
    ...{ port, url, folder, query, kill, restart, stop },
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
  }
}

/** Tries again if the lock or a port of a killed predecessor is not free yet. */
async function launch(config: string, folder: string): Promise<ChildProcess> {
  for (let tries = 1; ; tries += 1) {
    const child = spawn(program() ?? 'clickhouse-server', [`--config-file=${config}`], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    try {
      await childStarted(child, 'clickhouse-server', READY)
      return child
    } catch (error) {
      if (tries === LOCK_FREE_TRIES || !/already in use|another server instance/i.test(String(error))) throw error
    }
  }
}

function writeConfig(folder: string, httpPort: number, tcpPort: number): string {
  for (const name of ['data', 'tmp']) mkdirSync(join(folder, name))
  const paths = `<path>${folder}/data/</path><tmp_path>${folder}/tmp/</tmp_path>`
  const ports = `<http_port>${httpPort}</http_port><tcp_port>${tcpPort}</tcp_port><listen_host>127.0.0.1</listen_host>`
  const profile = '<default_profile>default</default_profile><default_database>default</default_database>'
  const limits = '<mark_cache_size>67108864</mark_cache_size><timezone>Asia/Kathmandu</timezone>'
  const config = `<yandex><logger><level>information</level><console>1</console></logger>
    ${ports}${paths}<users_config>${folder}/users.xml</users_config>${profile}${limits}</yandex>`
  const networks = '<networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>'
  const password = CLICKHOUSE_PASSWORD.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  const users = `<yandex>
    <profiles><default><max_memory_usage>2000000000</max_memory_usage></default></profiles>
    <users><default><password></password>${networks}</default>
      <${CLICKHOUSE_USER}><password>${password}</password>${networks}</${CLICKHOUSE_USER}></users>
    <quotas><default><interval><duration>3600</duration><queries>0</queries><errors>0</errors>
      <result_rows>0</result_rows><read_rows>0</read_rows><execution_time>0</execution_time></interval></default>
    </quotas></yandex>`
  writeFileSync(join(folder, 'config.xml'), config)
  writeFileSync(join(folder, 'users.xml'), users)
  return join(folder, 'config.xml')
}

function program(): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin']
  return folders.map((folder) => join(folder, 'clickhouse-server')).find((path) => existsSync(path))
}
