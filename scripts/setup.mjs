// Setup steps that commands share: installs packages, compiles sources, installs the servers that tests start.
// Each step runs once and prints its time; a step with nothing to do prints nothing and takes milliseconds.

import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { canInstallPrograms, installPrograms, missingPrograms, programsAdvice } from './programs.mjs'

export const root = fileURLToPath(new URL('..', import.meta.url))

/** Steps that ran, in order, for the summary of `npm test`. */
export const steps = []

export function installPackages() {
  const lock = readJson('package-lock.json')
  const workspaces = Object.keys(lock.packages).filter((path) => !path.includes('node_modules/'))
  const manifests = workspaces.map((path) => join(path, 'package.json')).filter((path) => existsSync(join(root, path)))
  const state = hashFiles(['package-lock.json', ...manifests])
  if (isStamped('install', state)) return
  if (!npmInstalled(lock)) requireStep('installing packages', () => run('npm', ['ci', '--no-audit', '--no-fund']))
  stamp('install', state)
}

/**
 * Compiles both published packages, and adds the bundled command, the example rules and the dashboard. Returns a hash
 * of all sources.
 */
export function build() {
  const library = compile('packages/sluice')
  const service = compile('packages/server', library)
  bundleCommand(service)
  cpSync(join(root, 'examples/rules.yaml'), join(root, 'packages/server/dist/examples/rules.yaml'))
  bundleDashboard()
  return service
}

/** Bundles the command from the compiled packages, whose sources have this hash, unless that is up to date. */
function bundleCommand(sources) {
  const script = 'scripts/bundle-command.mjs'
  const state = hashFiles([script], sources)
  if (isStamped('build-command', state) && existsSync(join(root, 'packages/server/dist/command'))) return
  requireStep('bundling the command', () => run(process.execPath, [join(root, script)]))
  stamp('build-command', state)
}

/** Bundles the dashboard unless that is up to date, and copies it into the `dist` of the server. */
export function bundleDashboard() {
  const folder = 'packages/dashboard'
  const folders = [join(folder, 'src'), join(folder, 'public'), 'packages/sluice/src']
  const sources = folders.flatMap(listFiles)
  const settings = ['package.json', 'vite.config.ts', 'index.html'].map((name) => join(folder, name))
  const state = hashFiles([...settings, ...sources, 'scripts/bundle-dashboard.mjs'], root)
  const [bundled, copy] = [join(root, folder, 'dist/app'), join(root, 'packages/server/dist/dashboard/app')]
  if (!isStamped('build-dashboard', state) || !existsSync(bundled)) {
    requireStep(`building ${folder}`, () => run(process.execPath, [join(root, 'scripts/bundle-dashboard.mjs')]))
    stamp('build-dashboard', state)
    rmSync(copy, { recursive: true, force: true })
  }
  const isServerBuilt = existsSync(join(root, 'packages/server/dist'))
  if (isServerBuilt && !existsSync(copy)) cpSync(bundled, copy, { recursive: true })
}

/** Compiles a workspace into its `dist` unless that is up to date. Returns a hash of its sources. */
export function compile(folder, dependsOn = '') {
  const sources = listFiles(join(folder, 'src')).filter((path) => path.endsWith('.ts') && !path.endsWith('.test.ts'))
  const settings = ['tsconfig.base.json', join(folder, 'tsconfig.json'), join(folder, 'package.json')]
  const state = hashFiles([...settings, ...sources], root, dependsOn) // root: two clones may share one node_modules
  const name = `build-${folder.replaceAll('/', '-')}`
  const dist = join(root, folder, 'dist')
  if (isStamped(name, state) && existsSync(dist)) return state
  requireStep(`building ${folder}`, () => {
    rmSync(dist, { recursive: true, force: true }) // removes the output of deleted sources
    return run(bin('tsc'), ['-p', join(folder, 'tsconfig.json'), '--incremental', 'false', '--tsBuildInfoFile', 'null'])
  })
  stamp(name, state)
  return state
}

/** Installs missing servers (all, or those `needed`) as root on Debian; elsewhere fails with the command to run. */
export function requirePrograms(needed = undefined) {
  const missing = missingPrograms().filter(({ program }) => needed === undefined || needed.includes(program))
  const required = missing.filter(({ optional }) => optional !== true)
  const names = required.map(({ program }) => program).join(', ')
  if (required.length > 0) {
    if (canInstallPrograms()) requireStep(`installing ${names} with apt-get`, () => installPrograms(required, run))
    else requireStep(`looking for ${names}`, () => programsAdvice(required))
  }
  for (const program of missing) if (program.optional === true) offerProgram(program)
}

/** Installs an optional program if possible; says otherwise that its tests are skipped. */
function offerProgram(missing) {
  const failure = canInstallPrograms() ? installPrograms([missing], run) : 'it is not installed'
  const outcome = failure === undefined ? 'installed with apt-get' : `its tests are skipped: ${failure.trim()}`
  process.stderr.write(`sluice: ${missing.program}: ${outcome}\n`)
}

/** Runs a command in this terminal until it exits, and forwards signals to it. Resolves to its exit code. */
export function runInForeground(command, args) {
  const child = spawn(command, args, { cwd: root, stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code, signal) => resolve(code ?? 128 + constants.signals[signal]))
  })
}

/** Runs a command until it exits. Returns its output if it failed, else undefined. */
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

/** Runs one step, which returns undefined or an error text. Prints its time and the error. */
export function step(name, work) {
  const startedMs = performance.now()
  process.stderr.write(`sluice: ${name} …`)
  const failure = work()
  const ms = performance.now() - startedMs
  process.stderr.write(` ${seconds(ms)}${failure === undefined ? '' : ` FAILED\n${failure.trimEnd()}`}\n`)
  steps.push({ name, ms, ok: failure === undefined })
  return failure === undefined
}

export function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`
}

export function bin(name) {
  return join(root, 'node_modules/.bin', name)
}

/** Paths from the root of all files under a folder; none if the folder does not exist. */
export function listFiles(folder) {
  if (!existsSync(join(root, folder))) return []
  return readdirSync(join(root, folder), { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) => (entry.isDirectory() ? listFiles(join(folder, entry.name)) : [join(folder, entry.name)]))
}

function requireStep(name, work) {
  if (!step(name, work)) process.exit(1)
}

/** Whether npm's record of installed packages matches the lock file, because `npm ci` was run by hand. */
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

// Stamps are in node_modules, which is not committed or published and is removed by a new installation.
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
