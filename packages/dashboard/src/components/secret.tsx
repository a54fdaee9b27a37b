// A secret that is shown once, with a button that copies it.

import { useId, useState } from 'preact/hooks'
import { Dialog } from './dialog.tsx'
import { Notice } from './notice.tsx'

type Props = { readonly title: string; readonly secret: string; readonly hint: string; readonly onClose: () => void }

export function SecretDialog({ title, secret, hint, onClose }: Props) {
  const [copied, setCopied] = useState(false)
  const id = useId()
  const copy = async () => {
    const field = document.getElementById(id) as HTMLInputElement | null
    field?.select()
    // Plain HTTP on another host than localhost has no clipboard: the text stays selected.
    await navigator.clipboard?.writeText(secret).then(
      () => setCopied(true),
      () => {},
    )
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="secret">
        <Notice tone="warning">Copy it now: it is shown only once, and only its hash is stored.</Notice>
        <label for={id}>{hint}</label>
        <input id={id} class="mono" readOnly value={secret} onFocus={({ currentTarget }) => currentTarget.select()} />
        <footer>
          <button type="button" onClick={() => void copy()}>
            {copied ? 'Copied' : 'Copy'}
          </button>
          <button type="button" class="primary" onClick={onClose}>
            Done
          </button>
        </footer>
      </div>
    </Dialog>
  )
}
