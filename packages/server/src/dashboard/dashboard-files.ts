// Files of the dashboard, read once and kept in memory with their compressed forms and ETags.

import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { PACKAGE_FOLDER } from '../package-facts.ts'

export type DashboardFile = {
  readonly type: string
  readonly etag: string
  /** The name contains a hash of the content, so that browsers may cache the file forever. */
  readonly isImmutable: boolean
  /** By content encoding. */
  readonly bodies: Readonly<Partial<Record<'identity' | 'gzip' | 'br', Buffer>>>
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}
export const INDEX = '/index.html'
const ENCODINGS = { gzip: '.gz', br: '.br' } as const
/** The build copies the app into this package; in a clone without a build of the server, it is in its own workspace. */
const FOLDERS = ['dist/dashboard/app', '../dashboard/dist/app'].map((path) =>
  fileURLToPath(new URL(path, PACKAGE_FOLDER)),
)

/** Path → file; undefined if the dashboard is not built. */
export function readDashboardFiles(): ReadonlyMap<string, DashboardFile> | undefined {
  const folder = FOLDERS.find((path) => existsSync(join(path, INDEX)))
  if (folder === undefined) return undefined
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => name.replaceAll('\\', '/'))
  return new Map(names.filter((name) => extname(name) in TYPES).map((name) => [`/${name}`, readFile(folder, name)]))
}

function readFile(folder: string, name: string): DashboardFile {
  const identity = readFileSync(join(folder, name))
  const compressed = Object.entries(ENCODINGS).flatMap(([encoding, ending]) => {
    const path = join(folder, name + ending)
    return existsSync(path) ? [[encoding, readFileSync(path)] as const] : []
  })
  return {
    type: TYPES[extname(name)] ?? 'application/octet-stream',
    etag: `"${createHash('sha256').update(identity).digest('base64url').slice(0, 22)}"`,
    isImmutable: name.startsWith('assets/'),
    bodies: { identity, ...Object.fromEntries(compressed) },
  }
}
