// Finds the servers that tests start, or installs them as root on Debian and Ubuntu. Installs programs only: no
// service is started or enabled.

import { accessSync, chmodSync, constants, existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/**
 * Each program with its Debian package and service; `orElse` lists programs that tests can use instead. Tests that need
 * an optional program skip themselves without it.
 */
const PROGRAMS = [
  { program: 'redis-server', aptPackage: 'redis-server', service: 'redis-server' },
  { program: 'postgres', aptPackage: 'postgresql', service: 'postgresql' },
  { program: 'etcd', aptPackage: 'etcd-server', service: 'etcd' },
  { program: 'nginx', aptPackage: 'nginx', service: 'nginx' },
  { program: 'haproxy', aptPackage: 'haproxy', service: 'haproxy' },
  { program: 'clickhouse-server', aptPackage: 'clickhouse-server', service: 'clickhouse-server', optional: true },
  // The headless shell uses half the CPU time of the browser.
  {
    ...{ program: 'chromium-headless-shell', orElse: ['chromium', 'chromium-browser'] },
    ...{ aptPackage: 'chromium-headless-shell', more: ['fonts-dejavu-core'], optional: true },
  },
  { program: 'prometheus', aptPackage: 'prometheus', service: 'prometheus' }, // with promtool
]

const APT_INSTALL = ['install', '-y', '--no-install-recommends']

/** Program that Debian runs to decide whether a package may start its service; exit code 101 forbids it. */
const POLICY = '/usr/sbin/policy-rc.d'

/** Debian installs the programs of PostgreSQL outside of the PATH. */
const POSTGRESQL = '/usr/lib/postgresql'

export function missingPrograms() {
  return PROGRAMS.filter(({ program, orElse = [] }) => ![program, ...orElse].some(isInstalled))
}

export function canInstallPrograms() {
  return process.getuid?.() === 0 && isInstalled('apt-get')
}

/** Returns undefined or an error text. `run` returns the output of a failed command. */
export function installPrograms(missing, run) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  return (
    run('apt-get', ['update'], env) ??
    withoutServices(missing, run, () => run('apt-get', [...APT_INSTALL, ...packagesOf(missing)], env)) ??
    stillMissing(missing)
  )
}

function stillMissing(installed) {
  const missing = missingPrograms().filter((program) => installed.includes(program))
  return missing.length === 0
    ? undefined
    : `apt-get installed ${packagesOf(missing).join(', ')}, but the programs are still missing`
}

function withoutServices(missing, run, install) {
  if (existsSync(POLICY)) return install()
  const ignoreCtrlC = () => {} // Ctrl-C ends apt-get; this process must survive to clean up
  process.on('SIGINT', ignoreCtrlC)
  try {
    writeFileSync(POLICY, '#!/bin/sh\nexit 101\n')
    chmodSync(POLICY, 0o755)
    let failure = install()
    // The packages also enable their services for the next boot.
    for (const { service } of missing.filter((program) => 'service' in program))
      failure ??= run('update-rc.d', [service, 'disable'])
    return failure
  } finally {
    rmSync(POLICY, { force: true })
    process.off('SIGINT', ignoreCtrlC)
  }
}

/** Error text with the command that installs the missing programs. */
export function programsAdvice(missing) {
  const names = missing.map(({ program }) => program).join(', ')
  const why = `The tests start their own servers and cannot find ${names}. Install them, then run again:`
  const packages = packagesOf(missing)
  if (isInstalled('apt-get'))
    return `${why}\n  sudo apt-get update && sudo apt-get ${[...APT_INSTALL, ...packages].join(' ')}`
  if (process.platform === 'darwin') return `${why}\n  brew install redis postgresql@15 etcd nginx haproxy prometheus`
  const versions = 'Redis 7, PostgreSQL 15, etcd 3.4, nginx, HAProxy and Prometheus 2.42 or newer'
  return `${why}\n  ${versions}, from your system's packages`
}

function packagesOf(programs) {
  return programs.flatMap(({ aptPackage, more = [] }) => [aptPackage, ...more])
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
