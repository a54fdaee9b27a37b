// Compiles the packages of an earlier commit into a temporary folder, to run them beside today's code or to compare
// with it. Other packages are those that are installed now.

import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Older version of rolling upgrades in tests: the last commit that knows no exceptions and writes no reports. */
export const OLD_VERSION = '030ff6c'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const PACKAGES = ['sluice', 'server']
/** Scopes and packages that must come from the commit itself. */
const OWN = ['sluice', '@sluice']

/** Undefined if this clone does not have the commit, for example because it is shallow. */
export function compileEarlierVersion(commit) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-earlier-'))
  const remove = () => rmSync(folder, { recursive: true, force: true })
  process.once('exit', remove) // when the caller is interrupted
  try {
    const paths = [...PACKAGES.map((name) => `packages/${name}`), 'tsconfig.base.json', 'examples/rules.yaml']
    const archive = execFileSync('git', ['archive', commit, ...paths], {
      cwd: ROOT,
      maxBuffer: 2 ** 30,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    execFileSync('tar', ['-x', '-C', folder], { input: archive })
  } catch {
    remove()
    return undefined
  }
  linkPackages(folder)
  for (const name of PACKAGES) compile(folder, name)
  cpSync(join(folder, 'examples/rules.yaml'), join(folder, 'packages/server/dist/examples/rules.yaml'))
  return { folder, main: join(folder, 'packages/server/dist/main.js'), remove }
}

function linkPackages(folder) {
  const modules = join(folder, 'node_modules')
  mkdirSync(modules)
  for (const name of readdirSync(join(ROOT, 'node_modules'))) {
    if (!OWN.includes(name)) symlinkSync(join(ROOT, 'node_modules', name), join(modules, name))
  }
  symlinkSync(join(folder, 'packages/sluice'), join(modules, 'sluice'))
}

/** Without type checks: other packages may be newer than the commit. */
function compile(folder, name) {
  const path = join(folder, 'packages', name, 'tsconfig.json')
  const { compilerOptions, ...settings } = JSON.parse(readFileSync(path, 'utf8'))
  writeFileSync(path, JSON.stringify({ ...settings, compilerOptions: { ...compilerOptions, noCheck: true } }))
  execFileSync(join(ROOT, 'node_modules/.bin/tsc'), ['-p', path], { cwd: folder, stdio: 'ignore' })
}
