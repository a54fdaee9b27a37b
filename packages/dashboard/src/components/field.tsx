// Form fields: a label, a hint, and the error of the field, connected for screen readers.

import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useId, useState } from 'preact/hooks'
import { type QueryPatch, useQuery } from '../location.ts'

type Common = {
  readonly label: string
  readonly hint?: ComponentChildren
  /** Fix for an invalid value. */
  readonly error?: string | undefined
}
type Described = { readonly id: string; readonly 'aria-describedby': string; readonly 'aria-invalid': boolean }

/** Wraps any control. `control` must pass its argument on to the element. */
export function Field({
  label,
  hint,
  error,
  control,
}: Common & { readonly control: (props: Described) => JSX.Element }) {
  const id = useId()
  const described = { id, 'aria-describedby': `${id}-hint`, 'aria-invalid': error !== undefined }
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {control(described)}
      <div class={error === undefined ? 'hint' : 'hint hint-error'} id={`${id}-hint`}>
        {error ?? hint}
      </div>
    </div>
  )
}

type TextProps = Common &
  Pick<JSX.InputHTMLAttributes, 'type' | 'placeholder' | 'autocomplete' | 'required' | 'min' | 'max' | 'step'> & {
    readonly value: string
    readonly onValue: (value: string) => void
    readonly autoFocus?: boolean
  }

export function TextField({ label, hint, error, onValue, autoFocus, ...input }: TextProps) {
  return (
    <Field
      label={label}
      hint={hint}
      error={error}
      control={(described) => (
        <input
          {...described}
          {...input}
          ref={(element) => {
            if (autoFocus === true && element !== null && document.activeElement === document.body) element.focus()
          }}
          spellcheck={false}
          onInput={({ currentTarget }) => onValue(currentTarget.value)}
        />
      )}
    />
  )
}

type SelectProps = Common & {
  readonly value: string
  readonly onValue: (value: string) => void
  /** Value → label. */
  readonly options: Readonly<Record<string, string>>
}

export function SelectField({ label, hint, error, value, onValue, options }: SelectProps) {
  return (
    <Field
      label={label}
      hint={hint}
      error={error}
      control={(described) => (
        <select {...described} value={value} onChange={({ currentTarget }) => onValue(currentTarget.value)}>
          {Object.entries(options).map(([option, text]) => (
            <option key={option} value={option}>
              {text}
            </option>
          ))}
        </select>
      )}
    />
  )
}

const TYPING_MS = 400

type QueryFieldProps = {
  readonly label: string
  /** Parameter of the URL. */
  readonly name: string
  /** Parameters that a new text changes too. */
  readonly resets?: QueryPatch
}

/** A filter in the URL. Applies after a pause in typing. */
export function QueryField({ label, name, resets }: QueryFieldProps) {
  const [query, setQuery] = useQuery()
  const applied = query[name] ?? ''
  const [text, setText] = useState(applied)
  useEffect(() => setText(applied), [applied])
  useEffect(() => {
    if (text.trim() === applied) return undefined
    const timer = setTimeout(() => setQuery({ ...resets, [name]: text.trim() }), TYPING_MS)
    return () => clearTimeout(timer)
  }, [text])
  return (
    <input
      type="search"
      aria-label={label}
      placeholder={label}
      value={text}
      spellcheck={false}
      onInput={({ currentTarget }) => setText(currentTarget.value)}
    />
  )
}
