// A box of a page with a heading.

import type { ComponentChildren } from 'preact'

type Props = {
  readonly title: string
  /** Beside the heading. */
  readonly note?: ComponentChildren
  readonly class?: string
  readonly children: ComponentChildren
}

export function Panel({ title, note, class: name = '', children }: Props) {
  return (
    <section class={`panel ${name}`} aria-label={title}>
      <header class="panel-head">
        <h2>{title}</h2>
        {note !== undefined && <div class="panel-note">{note}</div>}
      </header>
      {children}
    </section>
  )
}

/** Title of a page with its controls. Every page has exactly one. */
export function PageHead({ title, children }: { readonly title: string; readonly children?: ComponentChildren }) {
  return (
    <header class="page-head">
      <h1>{title}</h1>
      <div class="page-controls">{children}</div>
    </header>
  )
}
