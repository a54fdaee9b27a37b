// Keyboard shortcuts: `g` and a letter goes to a page, `/` searches, `?` lists the shortcuts. Ignored while typing.

import { useEffect } from 'preact/hooks'
import { monotonicMs } from './clock.ts'

/** Time between the keys of a sequence. */
const SEQUENCE_MS = 1200

export type Shortcuts = {
  /** Letter after `g`. */
  readonly go: (letter: string) => void
  /** Other keys, by `event.key`. */
  readonly keys: Readonly<Record<string, () => void>>
}

export function useShortcuts({ go, keys }: Shortcuts): void {
  useEffect(() => {
    let goPressedMs = Number.NEGATIVE_INFINITY
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return
      const isSequence = monotonicMs() - goPressedMs < SEQUENCE_MS
      goPressedMs = Number.NEGATIVE_INFINITY
      if (isSequence) {
        event.preventDefault()
        return go(event.key)
      }
      if (event.key === 'g') {
        goPressedMs = monotonicMs()
        return
      }
      const act = keys[event.key]
      if (act === undefined) return
      event.preventDefault()
      act()
    }
    addEventListener('keydown', onKey)
    return () => removeEventListener('keydown', onKey)
  }, [go, keys])
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.closest('dialog') !== null)
  )
}
