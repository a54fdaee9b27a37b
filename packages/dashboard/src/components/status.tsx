// State as a coloured dot and a word: colour is never the only sign.

import type { ComponentChildren } from 'preact'

export type Health = 'good' | 'warning' | 'bad' | 'off'

export function Status({ health, children }: { readonly health: Health; readonly children: ComponentChildren }) {
  return (
    <span class={`status status-${health}`}>
      <span class="dot" aria-hidden="true" />
      {children}
    </span>
  )
}

/** Short label, such as a mode or a source. */
export function Tag({ tone = 'plain', children }: { readonly tone?: string; readonly children: ComponentChildren }) {
  return <span class={`tag tag-${tone}`}>{children}</span>
}
