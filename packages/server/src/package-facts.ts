// What the package knows about itself: its version, and the example rules it comes with.

import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }

export const VERSION: string = manifest.version

/** In a clone, `examples/rules.yaml` of the repository, so that an edit there applies; else the copy in the package. */
export function exampleRulesPath(): string {
  const inClone = fileURLToPath(new URL('../../../examples/rules.yaml', import.meta.url))
  return existsSync(inClone) ? inClone : fileURLToPath(new URL('../examples/rules.yaml', import.meta.url))
}
