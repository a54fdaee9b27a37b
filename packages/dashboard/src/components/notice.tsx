// A message on the page. Errors and warnings are announced to screen readers.

import type { ComponentChildren } from 'preact'

export type Tone = 'info' | 'good' | 'warning' | 'error'

export function Notice({ tone = 'info', children }: { readonly tone?: Tone; readonly children: ComponentChildren }) {
  return (
    <div class={`notice notice-${tone}`} role={tone === 'error' || tone === 'warning' ? 'alert' : 'status'}>
      {children}
    </div>
  )
}

/** Error of a resource, with a button that loads it again. */
export function Failure({ error, retry }: { readonly error: string | undefined; readonly retry?: () => void }) {
  if (error === undefined) return null
  return (
    <Notice tone="error">
      {error}{' '}
      {retry !== undefined && (
        <button type="button" class="link" onClick={retry}>
          Try again
        </button>
      )}
    </Notice>
  )
}
