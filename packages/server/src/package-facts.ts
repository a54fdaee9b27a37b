// Version of the package, its optional dependencies, and the path of its example rules.

import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string
  optionalDependencies: Record<string, string>
}

export const VERSION: string = manifest.version

/** Exact versions by package name. npm installs them unless it is called with --omit=optional. */
export const OPTIONAL_DEPENDENCIES: Readonly<Record<string, string>> = manifest.optionalDependencies

/**
 * In a clone, `examples/rules.yaml` of the repository, so that edits apply without a build; else the copy that the
 * build made.
 */
export function exampleRulesPath(): string {
  const inClone = fileURLToPath(new URL('../../../examples/rules.yaml', import.meta.url))
  return existsSync(inClone) ? inClone : fileURLToPath(new URL('./examples/rules.yaml', import.meta.url))
}
