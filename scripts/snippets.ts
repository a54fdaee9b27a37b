// Code blocks of the documentation, for the tests that run or compile them.

import { readdirSync, readFileSync } from 'node:fs'

export type Block = { readonly page: string; readonly line: number; readonly language: string; readonly text: string }

const SCRIPT = /^(js|ts|mjs|javascript|typescript)$/

export const GUIDES: readonly string[] = readdirSync('docs/guides').map((name) => `docs/guides/${name}`)

/** Every page that a user reads. */
export const DOCUMENTATION: readonly string[] = [
  ...['README.md', 'packages/sluice/README.md', 'packages/server/README.md'],
  ...readdirSync('docs', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
]

export function blocksOf(page: string): Block[] {
  const text = readFileSync(page, 'utf8')
  return [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map((match) => {
    const [, language = '', content = ''] = match
    return { page, line: text.slice(0, match.index).split('\n').length, language, text: content }
  })
}

/** JavaScript and TypeScript. */
export function isScript({ language }: Block): boolean {
  return SCRIPT.test(language)
}
