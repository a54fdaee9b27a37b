// Form field for the lifetime of an exception.

import { SelectField } from '../components/field.tsx'

const LIFETIMES: Readonly<Record<string, string>> = {
  '15m': '15 minutes',
  '1h': '1 hour',
  '12h': '12 hours',
  '1d': '1 day',
  '7d': '7 days',
  '30d': '30 days',
  '90d': '90 days',
}

type Props = {
  readonly value: string
  readonly onValue: (value: string) => void
  /** Also offers `forever`. */
  readonly forever?: boolean
}

export function LifetimeField({ value, onValue, forever = false }: Props) {
  const options = forever ? { ...LIFETIMES, forever: 'Until it is removed' } : LIFETIMES
  return <SelectField label="Ends after" value={value} onValue={onValue} options={options} />
}

/** Fields of the API for a chosen lifetime. */
export function lifetimeBody(value: string): { readonly forever: true } | { readonly expires_in: string } {
  return value === 'forever' ? { forever: true } : { expires_in: value }
}
