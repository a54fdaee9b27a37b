// Describes the machine of a run, without its host name, and the versions of the libraries compared.

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { arch, availableParallelism, cpus, platform, totalmem } from 'node:os'

export type Machine = {
  readonly cores: number
  readonly cpu: string
  readonly memory_gb: number
  readonly node: string
  readonly platform: string
  /** Versions by package or program; all but Redis are pinned in bench/package.json. */
  readonly versions: Readonly<Record<string, string>>
}

export function thisMachine(): Machine {
  return {
    cores: availableParallelism(),
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    memory_gb: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    platform: `${platform()} ${arch()}`,
    versions: { ...pinned(), ...redisVersion() },
  }
}

function pinned(): Record<string, string> {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  return (manifest as { dependencies: Record<string, string> }).dependencies
}

function redisVersion(): Record<string, string> {
  const { stdout } = spawnSync('redis-server', ['--version'], { encoding: 'utf8' })
  const version = /v=(\S+)/.exec(stdout ?? '')?.[1]
  return version === undefined ? {} : { 'redis-server': version }
}
