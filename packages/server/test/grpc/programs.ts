// Programs for interoperability tests, cached in the folder for temporary files: the first build takes most of a
// minute.

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Command of a client, or why it cannot run here. */
export type Client = { readonly command: readonly string[] } | { readonly missing: string }

/** Set by `npm run soak -- clients`: tools of other languages install and build for minutes. */
export const hasToolchains = process.env.SLUICE_TOOLCHAINS !== undefined

export const BUILD_MS_MAX = 120_000
const PYTHON_PACKAGES = ['grpcio==1.76.0', 'grpcio-health-checking==1.76.0', 'grpcio-reflection==1.76.0']

/** Python with the packages of gRPC. */
export function pythonWithGrpc(): Client {
  const cache = cacheFolder('python', PYTHON_PACKAGES.join())
  const folder = join(cache, 'venv')
  const python = join(folder, 'bin/python')
  const ready = join(folder, 'ready')
  if (!existsSync(ready)) {
    rmSync(folder, { recursive: true, force: true })
    const missing =
      failureOf('python3', ['-m', 'venv', folder]) ??
      failureOf(python, ['-m', 'pip', 'install', '--quiet', '--only-binary', ':all:', ...PYTHON_PACKAGES])
    if (missing !== undefined) return { missing }
    mkdirSync(ready)
  }
  return { command: [python] }
}

export function cacheFolder(name: string, content: string): string {
  const hash = createHash('sha256').update(content).digest('hex').slice(0, 16)
  const folder = join(tmpdir(), 'sluice-interop', `${name}-${hash}`)
  mkdirSync(folder, { recursive: true })
  return folder
}

/** Undefined if the command succeeded. */
export function failureOf(program: string, args: readonly string[], cwd?: string): string | undefined {
  const { status, error, stderr } = spawnSync(program, args, { cwd, encoding: 'utf8', timeout: BUILD_MS_MAX })
  if (status === 0) return undefined
  return error?.message ?? stderr.trim().split('\n').at(-1) ?? `${program} failed`
}
