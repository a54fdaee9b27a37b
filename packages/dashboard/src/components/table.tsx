// A table with a caption for screen readers. Numbers are right-aligned; a wide table scrolls inside its box. While it
// loads it shows as many empty rows as it expects, so that nothing moves.

import type { ComponentChildren } from 'preact'

export type Column<Row> = {
  readonly title: string
  readonly cell: (row: Row) => ComponentChildren
  readonly align?: 'left' | 'right'
  /** Hidden below 640 px. */
  readonly wide?: boolean
}

type Props<Row> = {
  readonly caption: string
  readonly columns: readonly Column<Row>[]
  /** Undefined: still loading. */
  readonly rows: readonly Row[] | undefined
  readonly rowKey: (row: Row) => string
  /** Shown instead of rows when there are none. */
  readonly empty: ComponentChildren
  readonly loadingRows?: number
  readonly selected?: string | undefined
}

export function Table<Row>({ caption, columns, rows, rowKey, empty, loadingRows = 5, selected }: Props<Row>) {
  if (rows?.length === 0) return <div class="table-empty">{empty}</div>
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
    <section class="table-box" aria-label={caption} tabIndex={0}>
      <table aria-busy={rows === undefined}>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" class={classOf(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows === undefined
            ? Array.from({ length: loadingRows }, (_, index) => <LoadingRow key={index} columns={columns.length} />)
            : rows.map((row) => (
                <tr key={rowKey(row)} class={rowKey(row) === selected ? 'selected' : ''}>
                  {columns.map((column) => (
                    <td key={column.title} class={classOf(column)}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
              ))}
        </tbody>
      </table>
    </section>
  )
}

function LoadingRow({ columns }: { readonly columns: number }) {
  return (
    <tr>
      <td colSpan={columns}>
        <span class="skeleton" />
      </td>
    </tr>
  )
}

function classOf({ align, wide }: { readonly align?: 'left' | 'right'; readonly wide?: boolean }): string {
  return `${align === 'right' ? 'right' : ''} ${wide === true ? 'wide' : ''}`.trim()
}
