// List of keyboard shortcuts.

import { Dialog } from './components/dialog.tsx'
import { ROUTES } from './routes.ts'
import { isVisible } from './visibility.ts'

export function Help({ onClose }: { readonly onClose: () => void }) {
  const pages = ROUTES.filter((route) => route.key !== undefined && isVisible(route))
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl class="shortcuts">
        <Shortcut keys="/" does="Search" />
        <Shortcut keys="?" does="This list" />
        <Shortcut keys="Esc" does="Close" />
        {pages.map(({ path, key, title }) => (
          <Shortcut key={path} keys={`g ${key}`} does={title} />
        ))}
      </dl>
    </Dialog>
  )
}

function Shortcut({ keys, does }: { readonly keys: string; readonly does: string }) {
  return (
    <div>
      <dt>
        <kbd>{keys}</kbd>
      </dt>
      <dd>{does}</dd>
    </div>
  )
}
