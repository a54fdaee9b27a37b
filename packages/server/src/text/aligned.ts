// Formats rows of texts as aligned columns. Cells are escaped, because clients choose some of them.

import { escaped } from './escaped.ts'

export function aligned(texts: readonly (readonly string[])[]): string[] {
  const rows = texts.map((row) => row.map(escaped))
  const columns = Math.max(0, ...rows.map((row) => row.length))
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  )
  return rows.map((row) => `  ${row.map((text, column) => text.padEnd(widths[column] ?? 0)).join('   ')}`.trimEnd())
}
