// What every command needs first: packages installed, sources compiled, the servers that tests start.
// Each step does its work once and tells how long it took; a step with nothing to do is silent and costs milliseconds.

import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { canInstallPrograms, installPrograms, missingPrograms, programsAdvice } from './programs.mjs'

export const root = fileURLToPath(new URL('..', import.meta.url))

/** Every step that did something, in order: the summary of `npm test` is printed from it. */
export const steps = []

export function installPackages() {
  const lock = readJson('package-lock.json')
  const workspaces = Object.keys(lock.packages).filter((path) => !path.includes('node_modules/'))
  const manifests = workspaces.map((path) => join(path, 'package.json')).filter((path) => existsSync(join(root, path)))
  const state = hashFiles(['package-lock.json', ...manifests])
  if (isStamped('install', state)) return
  if (!npmInstalled(lock)) must('installing packages', () => run('npm', ['ci', '--no-audit', '--no-fund']))
  stamp('install', state)
}

/** Compiles both published packages. Returns a hash of all they were compiled from. */
export function build() {
  const library = compile('packages/sluice')
  return compile('packages/server', library)
}

/** Compiles a workspace into its `dist` unless that is up to date. Returns a hash of all that it was compiled from. */
export function compile(folder, dependsOn = '') {
  const sources = listFiles(join(folder, 'src')).filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts'))
  const settings = ['tsconfig.base.json', join(folder, 'tsconfig.json'), join(folder, 'package.json')]
  const state = hashFiles([...settings, ...sources], root, dependsOn) // root: two clones may share one node_modules
  const name = `build-${folder.replaceAll('/', '-')}`
  const dist = join(root, folder, 'dist')
  if (isStamped(name, state) && existsSync(dist)) return state
  must(`building ${folder}`, () => {
    rmSync(dist, { recursive: true, force: true }) // or the output of deleted sources would linger
    return run(bin('tsc'), ['-p', join(folder, 'tsconfig.json'), '--incremental', 'false', '--tsBuildInfoFile', 'null'])
  })
  stamp(name, state)
  return state
}

/** The servers that tests start, or those `needed`: as root on Debian they are installed, else the fix is told. */
export function requirePrograms(needed = undefined) {
  const missing = missingPrograms().filter(({ program }) => needed === undefined || needed.includes(program))
  if (missing.length === 0) return
  const names = missing.map(({ program }) => program).join(', ')
  if (canInstallPrograms()) must(`installing ${names} with apt-get`, () => installPrograms(missing, run))
  else must(`looking for ${names}`, () => programsAdvice(missing))
}

/** Runs a command in this terminal until it ends; signals reach it. Resolves to its exit code. */
export function runInForeground(command, args) {
  const child = spawn(command, args, { cwd: root, stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code, signal) => resolve(code ?? 128 + constants.signals[signal]))
  })
}

/** Runs a command to its end. Returns what it printed if it failed, undefined if it did not. */
export function run(command, args, env = process.env) {
  const { status, error, stdout, stderr } = spawnSync(command, args, {
    cwd: root,
    env,
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  })
  if (status === 0) return undefined
  return `${stdout ?? ''}${stderr ?? ''}` || `${command} failed: ${error?.message ?? `exit code ${status}`}`
}

/** Does one step, which returns undefined or what went wrong, and tells both how long it took and what went wrong. */
export function step(name, work) {
  const startedMs = performance.now()
  process.stderr.write(`sluice: ${name} …`)
  const trouble = work()
  const ms = performance.now() - startedMs
  process.stderr.write(` ${seconds(ms)}${trouble === undefined ? '' : ` FAILED\n${trouble.trimEnd()}`}\n`)
  steps.push({ name, ms, ok: trouble === undefined })
  return trouble === undefined
}

export function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`
}

export function bin(name) {
  return join(root, 'node_modules/.bin', name)
}

/** Every file under a folder of the project, by its path from the root; none if the folder does not exist. */
export function listFiles(folder) {
  if (!existsSync(join(root, folder))) return []
  return readdirSync(join(root, folder), { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) => (entry.isDirectory() ? listFiles(join(folder, entry.name)) : [join(folder, entry.name)]))
}

function must(name, work) {
  if (!step(name, work)) process.exit(1)
}

/** Whether npm's own record of what it installed is what the lock file asks for: then somebody ran it by hand. */
function npmInstalled(lock) {
  const record = join('node_modules', '.package-lock.json')
  if (!existsSync(join(root, record))) return false
  const installed = readJson(record).packages
  return Object.entries(lock.packages).every(([path, { version, integrity, optional, bin: commands = {} }]) => {
    const found = installed[path]
    if (!path.includes('node_modules/') && !Object.keys(commands).every((name) => existsSync(bin(name)))) return false
    return path === '' || (found ? found.version === version && found.integrity === integrity : optional === true)
  })
}

function hashFiles(paths, ...more) {
  const hash = createHash('sha256').update(JSON.stringify(more))
  for (const path of paths) {
    const content = readFileSync(join(root, path))
    hash.update(`\n${path} ${content.length}\n`).update(content)
  }
  return hash.digest('hex')
}

// Stamps live in node_modules: nothing there is published or committed, and a new installation starts afresh.
function stampPath(name) {
  return join(root, 'node_modules', `.sluice-${name}`)
}

function isStamped(name, state) {
  return existsSync(stampPath(name)) && readFileSync(stampPath(name), 'utf8') === state
}

function stamp(name, state) {
  writeFileSync(stampPath(name), state)
}

function readJson(path) {
  return JSON.parse(readFileSync(join(root, path), 'utf8'))
}
