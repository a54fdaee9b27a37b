// Search of the whole dashboard: pages by name, and entries that pages add, such as rules and clients.

import { useEffect, useState } from 'preact/hooks'
import { useLocation } from 'preact-iso'
import { Dialog } from './components/dialog.tsx'
import { usePageUrl } from './location.ts'
import { linkOf, ROUTES } from './routes.ts'
import { SEARCHES, type SearchHit } from './searches.ts'
import { isVisible } from './visibility.ts'

const HITS_MAX = 12
const TYPING_MS = 150

export function Search({ onClose }: { readonly onClose: () => void }) {
  const { route } = useLocation()
  const pageUrl = usePageUrl()
  const [text, setText] = useState('')
  const [index, setIndex] = useState(0)
  const found = useFound(text)
  const hits = [...pageHits(text), ...found].slice(0, HITS_MAX)
  const open = (hit: SearchHit | undefined) => {
    if (hit === undefined) return
    onClose()
    route(pageUrl(hit.path, hit.query))
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step !== undefined) {
      event.preventDefault()
      setIndex((index + step + hits.length) % Math.max(1, hits.length))
    }
    if (event.key === 'Enter') open(hits[index])
  }
  return (
    <Dialog title="Search" onClose={onClose}>
      <input
        data-focus
        type="search"
        class="search-input"
        role="combobox"
        aria-label="Search pages, rules and clients"
        aria-expanded="true"
        aria-controls="search-hits"
        aria-activedescendant={hits[index] === undefined ? undefined : `search-hit-${index}`}
        placeholder="Pages, rules, clients"
        value={text}
        onInput={({ currentTarget }) => {
          setText(currentTarget.value)
          setIndex(0)
        }}
        onKeyDown={onKeyDown}
      />
      <div class="search-hits" id="search-hits" role="listbox" aria-label="Results">
        {hits.map((hit, at) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input handles the keys
          <div
            key={`${hit.kind} ${hit.path} ${hit.title}`}
            id={`search-hit-${at}`}
            role="option"
            tabIndex={-1}
            aria-selected={at === index}
            onClick={() => open(hit)}
          >
            <span>{hit.title}</span> <span class="muted">{hit.kind}</span>
          </div>
        ))}
      </div>
    </Dialog>
  )
}

function pageHits(text: string): SearchHit[] {
  const wanted = text.trim().toLowerCase()
  return ROUTES.filter((route) => route.section !== undefined && isVisible(route))
    .filter(({ title, about }) => `${title} ${about}`.toLowerCase().includes(wanted))
    .map((route) => ({ kind: 'page', title: route.title, path: linkOf(route) }))
}

/** Entries that match, after a pause in typing. */
function useFound(text: string): readonly SearchHit[] {
  const [found, setFound] = useState<readonly SearchHit[]>([])
  useEffect(() => {
    const controller = new AbortController()
    const timer = setTimeout(async () => {
      const answers = text.trim() === '' ? [] : SEARCHES.map((search) => search(text.trim(), controller.signal))
      const lists = await Promise.all(answers.map((one) => one.catch(() => [])))
      if (!controller.signal.aborted) setFound(lists.flat())
    }, TYPING_MS)
    return () => {
      clearTimeout(timer)
      controller.abort()
    }
  }, [text])
  return found
}
