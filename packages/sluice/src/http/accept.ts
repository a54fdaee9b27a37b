// Content negotiation by the Accept header. Anything malformed counts as no preference.

const RANGES_MAX = 32

/** Whether the client prefers text to a problem document: browsers do, programs rarely. */
export function prefersText(accept: string | undefined): boolean {
  if (accept === undefined) return false
  const ranges = accept.toLowerCase().split(',', RANGES_MAX).map(rangeOf)
  return qualityOf(ranges, /^text\/(plain|html|\*)$/) > qualityOf(ranges, /^application\/(problem\+json|json|\*)$/)
}

type Range = { readonly type: string; readonly quality: number }

function rangeOf(text: string): Range {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim())
  const weight = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2)
  const quality = weight === undefined ? 1 : Number(weight)
  return { type, quality: quality >= 0 && quality <= 1 ? quality : 0 }
}

/** Quality of the best range that names the type, or else of the range for every type. */
function qualityOf(ranges: readonly Range[], named: RegExp): number {
  const own = ranges.filter(({ type }) => named.test(type))
  const wildcard = ranges.filter(({ type }) => type === '*/*')
  return Math.max(0, ...(own.length > 0 ? own : wildcard).map(({ quality }) => quality))
}
