// The folder of the package, its version and optional dependencies, and the path of its example rules.

import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** With a slash at the end. This code runs from `src`, from `dist` and from the bundle `dist/command`. */
export const PACKAGE_FOLDER: URL = packageFolder(new URL('.', import.meta.url))

const manifest = JSON.parse(readFileSync(new URL('package.json', PACKAGE_FOLDER), 'utf8')) as {
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
  const inClone = fileURLToPath(new URL('../../examples/rules.yaml', PACKAGE_FOLDER))
  return existsSync(inClone) ? inClone : fileURLToPath(new URL('dist/examples/rules.yaml', PACKAGE_FOLDER))
}

function packageFolder(folder: URL): URL {
  return existsSync(new URL('package.json', folder)) ? folder : packageFolder(new URL('..', folder))
}
