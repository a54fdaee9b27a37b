// Finds the servers that tests start or, as root on Debian and Ubuntu, installs them: the programs only, never a
// service that starts.

import { accessSync, chmodSync, constants, existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Each program, and Debian's package and service that it comes with. */
const PROGRAMS = [
  { program: 'redis-server', aptPackage: 'redis-server', service: 'redis-server' },
  { program: 'postgres', aptPackage: 'postgresql', service: 'postgresql' },
  { program: 'etcd', aptPackage: 'etcd-server', service: 'etcd' },
  { program: 'nginx', aptPackage: 'nginx', service: 'nginx' },
  { program: 'haproxy', aptPackage: 'haproxy', service: 'haproxy' },
]

const APT_INSTALL = ['install', '-y', '--no-install-recommends']

/** Debian asks this program whether a package may start its service; 101 says no. */
const POLICY = '/usr/sbin/policy-rc.d'

/** Debian keeps the programs of PostgreSQL out of the PATH, and those of the system out of a user's. */
const POSTGRESQL = '/usr/lib/postgresql'

export function missingPrograms() {
  return PROGRAMS.filter(({ program }) => !isInstalled(program))
}

export function canInstallPrograms() {
  return process.getuid?.() === 0 && isInstalled('apt-get')
}

/** Returns undefined, or what went wrong. `run` returns the output of a failed command. */
export function installPrograms(missing, run) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  return (
    run('apt-get', ['update'], env) ??
    withoutServices(missing, run, () => run('apt-get', [...APT_INSTALL, ...packagesOf(missing)], env)) ??
    stillMissing()
  )
}

function stillMissing() {
  const missing = missingPrograms()
  return missing.length === 0 ? undefined : `apt-get installed ${packagesOf(missing).join(', ')}, but not the programs`
}

function withoutServices(missing, run, install) {
  if (existsSync(POLICY)) return install()
  const outliveCtrlC = () => {} // Ctrl-C ends apt-get; with a listener of ours we live on, to clean up after it
  process.on('SIGINT', outliveCtrlC)
  try {
    writeFileSync(POLICY, '#!/bin/sh\nexit 101\n')
    chmodSync(POLICY, 0o755)
    let trouble = install()
    // The packages also have their services started at the next boot.
    for (const { service } of missing) trouble ??= run('update-rc.d', [service, 'disable'])
    return trouble
  } finally {
    rmSync(POLICY, { force: true })
    process.off('SIGINT', outliveCtrlC)
  }
}

/** Why the tests cannot run, and the command that mends it. */
export function programsAdvice(missing) {
  const names = missing.map(({ program }) => program).join(', ')
  const why = `The tests start servers of their own, and cannot find ${names}. Install what is missing, then run again:`
  const packages = packagesOf(missing)
  if (isInstalled('apt-get'))
    return `${why}\n  sudo apt-get update && sudo apt-get ${[...APT_INSTALL, ...packages].join(' ')}`
  if (process.platform === 'darwin') return `${why}\n  brew install redis postgresql@15 etcd nginx haproxy`
  return `${why}\n  Redis 7, PostgreSQL 15, etcd 3.4, nginx and HAProxy or newer, from your system's packages`
}

function packagesOf(programs) {
  return programs.map(({ aptPackage }) => aptPackage)
}

function isInstalled(program) {
  const versions = existsSync(POSTGRESQL) ? readdirSync(POSTGRESQL) : []
  const folders = [
    ...(process.env.PATH ?? '').split(delimiter),
    '/usr/sbin',
    ...versions.map((version) => join(POSTGRESQL, version, 'bin')),
  ]
  return folders.some((folder) => canRun(join(folder, program)))
}

function canRun(path) {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
