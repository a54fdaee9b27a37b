// Finds redis-server or, as root on Debian and Ubuntu, installs it: the program only, never a service that starts.

import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, rmSync, writeFileSync } from 'node:fs'

const APT_INSTALL = ['install', '-y', '--no-install-recommends', 'redis-server']

/** Debian asks this program whether a package may start its service; 101 says no. */
const POLICY = '/usr/sbin/policy-rc.d'

export function redisIsInstalled() {
  return canRun('redis-server')
}

export function canInstallRedis() {
  return process.getuid?.() === 0 && canRun('apt-get')
}

/** Returns undefined, or what went wrong. `run` returns the output of a failed command. */
export function installRedis(run) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  return (
    run('apt-get', ['update'], env) ??
    withoutService(run, () => run('apt-get', APT_INSTALL, env)) ??
    (redisIsInstalled() ? undefined : 'apt-get installed redis-server, but it cannot be run')
  )
}

function withoutService(run, install) {
  if (existsSync(POLICY)) return install()
  const outliveCtrlC = () => {} // Ctrl-C ends apt-get; with a listener of ours we live on, to clean up after it
  process.on('SIGINT', outliveCtrlC)
  try {
    writeFileSync(POLICY, '#!/bin/sh\nexit 101\n')
    chmodSync(POLICY, 0o755)
    const trouble = install()
    // The package also has its service started at the next boot.
    return trouble ?? run('update-rc.d', ['redis-server', 'disable'])
  } finally {
    rmSync(POLICY, { force: true })
    process.off('SIGINT', outliveCtrlC)
  }
}

/** Why the tests cannot run, and the command that mends it. */
export function redisAdvice() {
  const why =
    'The tests start Redis servers of their own, and redis-server is not on the PATH. Install it, then run again:'
  if (canRun('apt-get')) return `${why}\n  sudo apt-get update && sudo apt-get ${APT_INSTALL.join(' ')}`
  if (process.platform === 'darwin') return `${why}\n  brew install redis`
  return `${why}\n  Redis 7 or newer, from your system's packages or https://redis.io/downloads/`
}

function canRun(command) {
  return spawnSync(command, ['--version'], { stdio: 'ignore' }).status === 0
}
