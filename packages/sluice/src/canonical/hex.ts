// Hexadecimal digits by character code, for single-pass parsers.

/** 0…15, or -1 for any other character and for the end of the text (NaN). */
export function hexDigit(code: number): number {
  if (code >= 48 && code <= 57) return code - 48
  const lower = code | 32
  return lower >= 97 && lower <= 102 ? lower - 87 : -1
}
