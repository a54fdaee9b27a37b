// Which of two media types a client would rather read, by its Accept header. Anything odd counts as no preference.

const RANGES_MAX = 32

/** Whether a text for people is wanted rather than a problem document: browsers do, programs rarely. */
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

/** Of the best range that names the type; a range for everything is for both. */
function qualityOf(ranges: readonly Range[], named: RegExp): number {
  const own = ranges.filter(({ type }) => named.test(type))
  const both = ranges.filter(({ type }) => type === '*/*')
  return Math.max(0, ...(own.length > 0 ? own : both).map(({ quality }) => quality))
}
