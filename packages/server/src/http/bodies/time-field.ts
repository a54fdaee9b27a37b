// A time as a query parameter: its schema, and its value.

import { invalidField } from '../../problems/problem.ts'
import { TIME_FIX, timeOf } from '../../text/time.ts'
import type { Schema } from './schemas.ts'

export function timeField(description: string): Schema {
  return { type: 'string', description, maxLength: 40, 'x-fix': TIME_FIX }
}

/** Throws a problem if the text is not a time. */
export function timeIn(field: string, text: string | undefined): Date | undefined {
  if (text === undefined) return undefined
  const time = timeOf(text)
  if (time === undefined) throw invalidField(field, text, TIME_FIX)
  return time
}
