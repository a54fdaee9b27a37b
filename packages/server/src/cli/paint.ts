// Terminal colours. They carry no information that the text lacks.

import type { Terminal } from '../process/terminal.ts'

const CODES = { red: 31, green: 32, yellow: 33, bold: 1, dim: 2 } as const

export type Paint = (color: keyof typeof CODES, text: string) => string

export function paintOn({ colors }: Terminal): Paint {
  return (color, text) => (colors ? `\u001b[${CODES[color]}m${text}\u001b[0m` : text)
}
