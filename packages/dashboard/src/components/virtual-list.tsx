// A long list with rows of one height, of which only the visible ones exist. Rows are reachable by arrow keys.

import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'

type Props<Item> = {
  readonly label: string
  readonly items: readonly Item[]
  readonly itemKey: (item: Item) => string
  readonly rowHeight: number
  readonly row: (item: Item) => ComponentChildren
  readonly rowClass?: (item: Item) => string
  readonly onOpen: (item: Item) => void
  readonly empty: ComponentChildren
}

/** Rows above and below the visible part. */
const MARGIN = 8

export function VirtualList<Item>(props: Props<Item>) {
  const { label, items, itemKey, rowHeight, row, rowClass, onOpen, empty } = props
  const box = useRef<HTMLDivElement>(null)
  const [view, setView] = useState({ top: 0, height: 600 })
  useEffect(() => {
    const element = box.current
    if (element === null) return undefined
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight })
    const observer = new ResizeObserver(measure)
    observer.observe(element)
    element.addEventListener('scroll', measure, { passive: true })
    return () => {
      observer.disconnect()
      element.removeEventListener('scroll', measure)
    }
  }, [])
  const first = Math.max(0, Math.floor(view.top / rowHeight) - MARGIN)
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / rowHeight) + MARGIN)
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step === undefined) return
    event.preventDefault()
    const buttons = [...(box.current?.querySelectorAll('button') ?? [])]
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement)
    buttons[at === -1 ? 0 : at + step]?.focus()
  }
  return (
    <section class="list-box" ref={box} aria-label={label} onKeyDown={onKeyDown}>
      {items.length === 0 && empty}
      <ul style={{ height: `${items.length * rowHeight}px` }}>
        {items.slice(first, last).map((item, index) => (
          <li key={itemKey(item)} style={{ transform: `translateY(${(first + index) * rowHeight}px)` }}>
            <button
              type="button"
              class={`list-row ${rowClass?.(item) ?? ''}`}
              style={{ height: `${rowHeight}px` }}
              onClick={() => onOpen(item)}
            >
              {row(item)}
            </button>
          </li>
        ))}
      </ul>
    </section>
  )
}
