// Modal dialogs on the browser's <dialog>: focus stays inside, Escape closes, the rest of the page is inert.

import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { messageOf } from '../api.ts'
import { TextField } from './field.tsx'
import { Failure } from './notice.tsx'

type DialogProps = {
  readonly title: string
  readonly onClose: () => void
  readonly children: ComponentChildren
  /** `side`: a panel at the right edge, for details. */
  readonly kind?: 'center' | 'side'
}

export function Dialog({ title, onClose, children, kind = 'center' }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null)
  const titleId = useId()
  // A layout effect, so that focus is in the dialog before the next key press.
  useLayoutEffect(() => {
    const dialog = element.current
    dialog?.showModal()
    dialog?.querySelector<HTMLElement>('[data-focus]')?.focus()
    return () => dialog?.close()
  }, [])
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape and the close button do the same
    <dialog
      ref={element}
      class={`dialog dialog-${kind}`}
      aria-labelledby={titleId}
      onCancel={onClose}
      onClick={({ target }) => target === element.current && onClose()}
    >
      <div class="dialog-box">
        <header>
          <h2 id={titleId}>{title}</h2>
          <button type="button" class="icon" aria-label="Close" onClick={onClose}>
            ✕
          </button>
        </header>
        {children}
      </div>
    </dialog>
  )
}

type ConfirmProps = {
  readonly title: string
  /** Says what will happen. */
  readonly children: ComponentChildren
  /** Text of the button: the verb of the action. */
  readonly action: string
  readonly danger?: boolean
  /** Asks for a reason, which is passed to `onConfirm`. */
  readonly reason?: 'required' | 'optional'
  /** The user must type this text first. */
  readonly typed?: string
  /** The dialog closes when it resolves, and shows the error when it rejects. */
  readonly onConfirm: (reason: string) => Promise<unknown>
  readonly onClose: () => void
}

/** Asks before something changes. */
export function Confirm({ title, children, action, danger, reason, typed, onConfirm, onClose }: ConfirmProps) {
  const [text, setText] = useState('')
  const [echo, setEcho] = useState('')
  const [error, setError] = useState<string>()
  const [isBusy, setBusy] = useState(false)
  const isExplained = reason !== 'required' || text.trim() !== ''
  const isReady = isExplained && (typed === undefined || echo === typed)
  const confirm = async (event: Event) => {
    event.preventDefault()
    setBusy(true)
    try {
      await onConfirm(text.trim())
      onClose()
    } catch (failure) {
      setError(messageOf(failure))
      setBusy(false)
    }
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={confirm}>
        <div class="dialog-text">{children}</div>
        {reason !== undefined && (
          <TextField
            label={reason === 'required' ? 'Reason' : 'Reason (optional)'}
            hint="Recorded in the audit log."
            value={text}
            onValue={setText}
          />
        )}
        {typed !== undefined && <TextField label={`Type ${typed} to confirm`} value={echo} onValue={setEcho} />}
        <Failure error={error} />
        <footer>
          {!isReady && <Missing>{isExplained ? `Type ${typed} to confirm.` : 'A reason is missing.'}</Missing>}
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={danger === true ? 'danger' : 'primary'} disabled={!isReady || isBusy}>
            {action}
          </button>
        </footer>
      </form>
    </Dialog>
  )
}

/** In the footer of a dialog: says why its button is disabled. */
export function Missing({ children }: { readonly children: ComponentChildren }) {
  return <span class="missing muted">{children}</span>
}
