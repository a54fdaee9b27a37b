// Line diff of two texts: removed and added lines with their context. Longest common subsequence, for texts of a few
// hundred lines.

export type DiffLine = { readonly kind: 'same' | 'removed' | 'added'; readonly text: string }

/** Lines around a change that are shown. */
const CONTEXT = 3

export function Diff({ before, after }: { readonly before: string; readonly after: string }) {
  const lines = diffLines(linesOf(before), linesOf(after))
  const shown = lines.map((_, index) => lines.slice(Math.max(0, index - CONTEXT), index + CONTEXT + 1).some(isChange))
  if (!shown.includes(true)) return <p class="muted">No difference.</p>
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
    <pre class="diff" tabIndex={0}>
      {lines.map((line, index) => {
        if (shown[index] !== true) return shown[index - 1] === true ? <span key={index}>⋯{'\n'}</span> : null
        const sign = { same: ' ', removed: '-', added: '+' }[line.kind]
        return (
          <span key={index} class={`diff-${line.kind}`}>
            {`${sign} ${line.text}\n`}
          </span>
        )
      })}
    </pre>
  )
}

/** Without the empty line after the last newline. An empty text has no lines. */
function linesOf(text: string): string[] {
  return text === '' ? [] : text.replace(/\n$/, '').split('\n')
}

function isChange({ kind }: DiffLine): boolean {
  return kind !== 'same'
}

export function diffLines(before: readonly string[], after: readonly string[]): DiffLine[] {
  const lengths = commonLengths(before, after)
  const lines: DiffLine[] = []
  let [i, j] = [0, 0]
  while (i < before.length || j < after.length) {
    const [old, fresh] = [before[i], after[j]]
    if (old !== undefined && old === fresh) {
      lines.push({ kind: 'same', text: old })
      i++
      j++
    } else if (fresh === undefined || (old !== undefined && at(lengths, i + 1, j) >= at(lengths, i, j + 1))) {
      lines.push({ kind: 'removed', text: old ?? '' })
      i++
    } else {
      lines.push({ kind: 'added', text: fresh })
      j++
    }
  }
  return lines
}

/** Length of the longest common subsequence of the rest of both texts, from each pair of lines. */
function commonLengths(before: readonly string[], after: readonly string[]): Uint32Array[] {
  const rows = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1))
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      const row = rows[i] as Uint32Array
      row[j] = before[i] === after[j] ? at(rows, i + 1, j + 1) + 1 : Math.max(at(rows, i + 1, j), at(rows, i, j + 1))
    }
  }
  return rows
}

function at(rows: readonly Uint32Array[], i: number, j: number): number {
  return rows[i]?.[j] ?? 0
}
