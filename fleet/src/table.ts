// Live table of the fleet. On a terminal it is redrawn in place every second; otherwise it is printed less often.

import { ALL, type Ledger } from './ledger.ts'

export type RegionView = {
  readonly name: string
  readonly health: string
  readonly borrowedUnits: number
}

const HEAD = ['region', 'admitted/s', 'refused/s', 'by on_fail', 'borrowed', 'drift', 'health']
const WIDTHS = [8, 11, 11, 11, 10, 9, 0]
const UP = (lines: number) => `\u001b[${lines}A\u001b[J`

export class LiveTable {
  readonly #ledger: Ledger
  readonly #out: NodeJS.WriteStream
  readonly #before = new Map<string, { admitted: number; refused: number }>()
  #beforeMs: number
  #lines = 0

  constructor(ledger: Ledger, out: NodeJS.WriteStream, nowMs: number) {
    this.#ledger = ledger
    this.#out = out
    this.#beforeMs = nowMs
  }

  draw(views: readonly RegionView[], title: string, nowMs: number): void {
    const rows = [HEAD, ...views.map((view) => this.#row(view, nowMs)), this.#sum(views)]
    this.#beforeMs = nowMs
    const lines = [title, ...rows.map(alignedRow)]
    this.#out.write(`${this.#out.isTTY && this.#lines > 0 ? UP(this.#lines) : ''}${lines.join('\n')}\n`)
    this.#lines = lines.length
  }

  #row({ name, health, borrowedUnits }: RegionView, nowMs: number): string[] {
    const { admitted, refused, byPolicy } = this.#ledger.counts(name)
    const before = this.#before.get(name) ?? { admitted: 0, refused: 0 }
    this.#before.set(name, { admitted, refused })
    const perSecond = (count: number) => Math.round((count * 1000) / Math.max(1, nowMs - this.#beforeMs)).toString()
    const rates = [perSecond(admitted - before.admitted), perSecond(refused - before.refused)]
    return [name, ...rates, String(byPolicy), String(borrowedUnits), percent(this.#ledger.drift(name)), health]
  }

  #sum(views: readonly RegionView[]): string[] {
    const { violations, peakUsage } = this.#ledger.intervals()
    const borrowed = views.reduce((sum, { borrowedUnits }) => sum + borrowedUnits, 0)
    const limits = violations > 0 ? `${violations} ABOVE THE LIMIT` : `peak usage ${percent(peakUsage)}`
    const p99 = `p99 ${this.#ledger.p99Ms().toFixed(1)} ms`
    return ['both', '', '', '', String(borrowed), percent(this.#ledger.drift(ALL)), `${limits}, ${p99}`]
  }
}

export function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`
}

function alignedRow(cells: readonly string[]): string {
  const cell = (text: string, column: number) => {
    const width = WIDTHS[column] ?? 0
    return column === 0 || width === 0 ? text.padEnd(width) : text.padStart(width)
  }
  return `  ${cells.map(cell).join('  ').trimEnd()}`
}
