// Explains an empty page: what will be here, and what to do to see it.

import type { ComponentChildren } from 'preact'

type Props = {
  readonly title: string
  /** Says what appears here, and when. */
  readonly children: ComponentChildren
  /** A button or a link to the next step. */
  readonly action?: ComponentChildren
}

export function EmptyState({ title, children, action }: Props) {
  return (
    <div class="empty-state">
      <p class="empty-title">{title}</p>
      <div class="empty-text">{children}</div>
      {action !== undefined && <div class="empty-action">{action}</div>}
    </div>
  )
}
