// Bodies that are expensive to parse, validate or report, for any route and any size. Each is a function of its size,
// so that a test can compare a body with one of twice the length.

export type MakeText = (bytes: number) => string

/** JSON values of about this length. */
export const JSON_VALUES: Readonly<Record<string, MakeText>> = {
  'nested lists': (bytes) => nested('[', ']', bytes),
  'nested objects': (bytes) => nested('{"a":', '}', bytes),
  'many keys': (bytes) => `{${filled(bytes, (index) => `"k${index}":0`)}}`,
  'one key many times': (bytes) => `{${filled(bytes, () => '"limit":0')}}`,
  'keys near a known one': (bytes) => `{${filled(bytes, (index) => `"limit${index.toString(36)}":0`)}}`,
  'keys of digits': (bytes) => `{${filled(bytes, (index) => `"${index * 7919}":0`)}}`,
  zeros: (bytes) => `[${filled(bytes, () => '0')}]`,
  'empty lists': (bytes) => `[${filled(bytes, () => '[]')}]`,
  'empty objects': (bytes) => `[${filled(bytes, () => '{}')}]`,
  'unknown fields in a list': (bytes) => `[${filled(bytes, (index) => `{"k${index}":0}`)}]`,
  'short strings': (bytes) => `[${filled(bytes, (index) => `"s${index}"`)}]`,
  'the same string': (bytes) => `[${filled(bytes, () => '"GET"')}]`,
  'a long string': (bytes) => `"${'a'.repeat(bytes)}"`,
  'a path of wildcards': (bytes) => `"${'/*'.repeat(bytes / 2)}"`,
  'a path of deep wildcards': (bytes) => `"${'/**/a'.repeat(bytes / 5)}"`,
  'a path of dots': (bytes) => `"${'/..'.repeat(bytes / 3)}"`,
  'a path of escapes': (bytes) => `"${'/%2e%2F'.repeat(bytes / 7)}"`,
  'a string of escapes': (bytes) => `"${'\\u0000'.repeat(bytes / 6)}"`,
  'a string of backslashes': (bytes) => `"${'\\\\'.repeat(bytes / 2)}"`,
  'a string of emoji': (bytes) => `"${'😀'.repeat(bytes / 4)}"`,
  'a string of spaces': (bytes) => `"a${' '.repeat(bytes)}b"`,
  'a long number': (bytes) => '9'.repeat(bytes),
  'a long fraction': (bytes) => `0.${'9'.repeat(bytes)}`,
  'white space': (bytes) => `${' '.repeat(bytes)}0`,
  'line breaks': (bytes) => `${'\n'.repeat(bytes)}0`,
}

/** YAML documents of about this length, most of them no valid rule. */
export const YAML_TEXTS: Readonly<Record<string, MakeText>> = {
  'flow map': (bytes) => `{${filled(bytes, (index) => `k${index}: 0`)}}`,
  'flow map without values': (bytes) => `{${filled(bytes, (index) => `k${index}`)}}`,
  'flow list': (bytes) => `[${filled(bytes, () => 'a')}]`,
  'flow list of maps': (bytes) => `[${filled(bytes, (index) => `{k${index}: 0}`)}]`,
  'flow list of pairs': (bytes) => `[${filled(bytes, (index) => `k${index}: 0`)}]`,
  'unclosed flow map': (bytes) => `{${filled(bytes, (index) => `k${index}: 0`)}`,
  'nested flow lists': (bytes) => nested('[', ']', bytes),
  'nested flow maps': (bytes) => nested('{a: ', '}', bytes),
  'a hundred levels, often': (bytes) => filled(bytes, (index) => `k${index}: ${'['.repeat(99)}${']'.repeat(99)}`, '\n'),
  'block map': (bytes) => filled(bytes, (index) => `k${index}: 0`, '\n'),
  'block map of quoted keys': (bytes) => filled(bytes, (index) => `"k${index}": "0"`, '\n'),
  'block map of explicit keys': (bytes) => filled(bytes, (index) => `? k${index}\n: 0`, '\n'),
  'block map of collections as keys': (bytes) => filled(bytes, (index) => `? [k${index}]\n: 0`, '\n'),
  'block map of empty keys': (bytes) => filled(bytes, () => ': 0', '\n'),
  'one key many times': (bytes) => filled(bytes, () => 'limit: 0', '\n'),
  'block list': (bytes) => filled(bytes, () => '- a', '\n'),
  'block list in one line': (bytes) => '- '.repeat(bytes / 2),
  'nested block map': (bytes) => nestedBlocks(bytes),
  'a hundred nested lists, often': (bytes) => filled(bytes, () => `${'- '.repeat(99)}a`, '\n'),
  anchors: (bytes) => filled(bytes, (index) => `- &a${index} 0`, '\n'),
  'anchors and aliases': (bytes) => filled(bytes, (index) => `- &a${index} 0\n- *a${index}`, '\n'),
  'aliases of one anchor': (bytes) => `- &a [0]\n${filled(bytes, () => '- *a', '\n')}`,
  'unknown aliases': (bytes) => filled(bytes, () => '- *a', '\n'),
  'expanding aliases': (bytes) => expandingAliases(bytes),
  'merge keys': (bytes) => `a: &a {b: 0}\n${filled(bytes, (index) => `k${index}: {<<: *a}`, '\n')}`,
  'merge key of many keys': (bytes) => `a: &a {${filled(bytes, (index) => `k${index}: 0`)}}\nb: {<<: *a}`,
  'merge lists': (bytes) => `a: &a {b: 0}\nc: {<<: [${filled(bytes, () => '*a')}]}`,
  tags: (bytes) => filled(bytes, () => '- !a 0', '\n'),
  'tag directives': (bytes) => `${filled(bytes, (index) => `%TAG !a${index}! b`, '\n')}\n--- 0`,
  directives: (bytes) => `${filled(bytes, () => '%YAML 1.2', '\n')}\n--- 0`,
  documents: (bytes) => filled(bytes, () => '--- 0', '\n'),
  'document ends': (bytes) => filled(bytes, () => '...', '\n'),
  comments: (bytes) => `${filled(bytes, () => '# a', '\n')}\na: 0`,
  'comments between entries': (bytes) => filled(bytes, (index) => `k${index}: 0 # a\n# b`, '\n'),
  'comments in a flow list': (bytes) => `[\n${filled(bytes, () => 'a # b', ',\n')}\n]`,
  'one comment': (bytes) => `a: 0 #${'a'.repeat(bytes)}`,
  'blank lines': (bytes) => `a: 0\n${'\n'.repeat(bytes)}b: 0`,
  'indented blank lines': (bytes) => `a:\n${'  \n'.repeat(bytes / 3)}  b: 0`,
  spaces: (bytes) => `a: ${' '.repeat(bytes)}0`,
  tabs: (bytes) => `a:${'\t'.repeat(bytes)}0`,
  'lines of tabs': (bytes) => `a:\n${'\t\n'.repeat(bytes / 2)}b: 0`,
  'a plain scalar': (bytes) => `a: ${'a'.repeat(bytes)}`,
  'a plain scalar of words': (bytes) => `a: ${'a '.repeat(bytes / 2)}`,
  'a plain scalar of many lines': (bytes) => `a: b\n${' b\n'.repeat(bytes / 3)}`,
  'a plain scalar of blank lines': (bytes) => `a: b\n${' b\n\n'.repeat(bytes / 4)}`,
  'a plain scalar of colons': (bytes) => `a: ${'b:'.repeat(bytes / 2)}c`,
  'a plain scalar of number signs': (bytes) => `a: ${'b#'.repeat(bytes / 2)}c`,
  'a number': (bytes) => `a: ${'9'.repeat(bytes)}`,
  'a number of underscores': (bytes) => `a: 1${'_'.repeat(bytes)}`,
  'a double-quoted scalar of lines': (bytes) => `a: "${'b\n '.repeat(bytes / 3)}"`,
  'a double-quoted scalar of escapes': (bytes) => `a: "${'\\u0041'.repeat(bytes / 6)}"`,
  'a double-quoted scalar of spaces': (bytes) => `a: "${' '.repeat(bytes)}"`,
  'a single-quoted scalar of lines': (bytes) => `a: '${'b\n '.repeat(bytes / 3)}'`,
  'a single-quoted scalar of quotes': (bytes) => `a: '${"''".repeat(bytes / 2)}'`,
  'an unclosed quote': (bytes) => `a: "${'b\n '.repeat(bytes / 3)}`,
  'a literal block': (bytes) => `a: |\n${' b\n'.repeat(bytes / 3)}`,
  'a folded block': (bytes) => `a: >\n${' b\n'.repeat(bytes / 3)}`,
  'a literal block of blank lines': (bytes) => `a: |\n${' \n'.repeat(bytes / 2)}`,
  'a mistake in every line': (bytes) => filled(bytes, () => 'a: b: c', '\n'),
  'wrong indentation': (bytes) => filled(bytes, (index) => `${' '.repeat(index % 7)}k${index}: 0`, '\n'),
  'closing brackets': (bytes) => ']'.repeat(bytes),
  commas: (bytes) => `[${','.repeat(bytes)}]`,
  'question marks': (bytes) => `{${'? ,'.repeat(bytes / 3)}}`,
  'one line of colons': (bytes) => ': '.repeat(bytes / 2),
  emoji: (bytes) => filled(bytes, () => '- 😀', '\n'),
  'carriage returns': (bytes) => filled(bytes, (index) => `k${index}: 0`, '\r\n'),
  'byte order marks': (bytes) => '\ufeff'.repeat(bytes / 3),
  'rules with a mistake each': (bytes) => filled(bytes, (index) => `- {rule_id: r${index}, limit: -1}`, '\n'),
  'rules with unknown fields': (bytes) => filled(bytes, (index) => `- {rule_id: r${index}, limitt: 1}`, '\n'),
  rules: (bytes) =>
    filled(bytes, (index) => `- {rule_id: r${index}, endpoint_pattern: /a/:b/c${index}, limit: 9, window: 1s}`, '\n'),
  'rules of one path': (bytes) =>
    filled(bytes, (index) => `- {rule_id: r${index}, endpoint_pattern: /a/*/c, plan: p${index}, limit: 9}`, '\n'),
}

/** JSON of one rule that fills one of its fields. */
export const RULE_FIELDS: Readonly<Record<string, MakeText>> = Object.fromEntries(
  Object.entries<MakeText>({
    'a long pattern': (bytes) => `"endpoint_pattern":"${'/a'.repeat(bytes / 2)}"`,
    'a pattern of wildcards': (bytes) => `"endpoint_pattern":"${'/*'.repeat(bytes / 2)}"`,
    'a pattern of parameters': (bytes) => `"endpoint_pattern":"${'/:a'.repeat(bytes / 3)}"`,
    'a pattern of escapes': (bytes) => `"endpoint_pattern":"${'/%2e'.repeat(bytes / 4)}"`,
    'a long description': (bytes) => `"description":"${'a'.repeat(bytes)}"`,
    'a description of emoji': (bytes) => `"description":"${'😀'.repeat(bytes / 4)}"`,
    methods: (bytes) => `"method":[${filled(bytes, (index) => `"GET${index}"`)}]`,
    'one method many times': (bytes) => `"method":[${filled(bytes, () => '"GET"')}]`,
    'facts of the scope': (bytes) => `"scope":[${filled(bytes, (index) => `"f${index}"`)}]`,
    'unknown scopes': (bytes) => `"scope":"${'per_user+'.repeat(bytes / 9)}"`,
    conditions: (bytes) => `"when":{${filled(bytes, (index) => `"header.x${index}":"a"`)}}`,
    'values of a condition': (bytes) => `"when":{"country":[${filled(bytes, (index) => `"c${index}"`)}]}`,
    'one value many times': (bytes) => `"when":{"country":[${filled(bytes, () => '"c"')}]}`,
    'prefixes of a condition': (bytes) => `"when":{"country":[${filled(bytes, (index) => `"c${index}*"`)}]}`,
    'nested negations': (bytes) => `"when":{"country":${nested('{"not":', '}', bytes)}}`,
    'address ranges': (bytes) =>
      `"when":{"ip":[${filled(bytes, (index) => `"10.${(index >> 8) & 255}.${index & 255}.0/24"`)}]}`,
    limits: (bytes) => `"limits":[${filled(bytes, (index) => `{"limit":1,"window_seconds":${index + 1}}`)}]`,
    'named limits': (bytes) => `"limits":[${filled(bytes, (index) => `{"name":"n${index}","limit":1,"window":"1s"}`)}]`,
    'invalid limits': (bytes) => `"limits":[${filled(bytes, () => '{}')}]`,
    plans: (bytes) => `"by_plan":{${filled(bytes, (index) => `"p${index}":{"limit":1}`)}}`,
    'invalid plans': (bytes) => `"by_plan":{${filled(bytes, (index) => `"p${index}":{"limitt":1}`)}}`,
    'unknown fields': (bytes) => filled(bytes, (index) => `"limi${index.toString(36)}":0`),
  }).map(([name, field]) => [
    name,
    (bytes) => `{"rule_id":"worst","scope":"per_user","limit":5,"window_seconds":10,${field(bytes)}}`,
  ]),
)

/** `item(0)`, `item(1)`, … joined until they have this length. */
export function filled(bytes: number, item: (index: number) => string, separator = ','): string {
  const items: string[] = []
  for (let length = 0; length < bytes; ) {
    const next = item(items.length)
    items.push(next)
    length += next.length + separator.length
  }
  return items.join(separator)
}

function nested(open: string, close: string, bytes: number): string {
  const depth = Math.floor(bytes / (open.length + close.length))
  return `${open.repeat(depth)}0${close.repeat(depth)}`
}

/** Maps inside maps, one space deeper each, until they have this length. */
function nestedBlocks(bytes: number): string {
  const depth = Math.floor(Math.sqrt(2 * bytes))
  return Array.from({ length: depth }, (_, index) => `${' '.repeat(index)}a:`).join('\n')
}

/** Each list has the one before it twice. */
function expandingAliases(bytes: number): string {
  return `- &a0 [0]\n${filled(bytes, (index) => `- &a${index + 1} [*a${index}, *a${index}]`, '\n')}`
}

/** Values in place of each part of a body; all others only in place of the whole body. */
const INSIDE = [
  ...['nested lists', 'nested objects', 'many keys', 'keys near a known one', 'zeros', 'empty objects'],
  ...['unknown fields in a list', 'a long string', 'a path of wildcards', 'a string of escapes', 'a long number'],
]

export type Schema = {
  readonly type?: unknown
  readonly properties?: Readonly<Record<string, Schema>>
  readonly examples?: readonly unknown[]
  readonly items?: Schema
}

/** The example of a schema, with every optional field. */
export function exampleOf({ examples = [], properties = {}, items, type }: Schema, given?: unknown): unknown {
  const example = given ?? examples[0]
  if (typeof example === 'object' && example !== null && !Array.isArray(example)) {
    const fields = Object.entries(properties).map(([name, schema]) => [name, exampleOf(schema)])
    return { ...Object.fromEntries(fields), ...example }
  }
  if (example !== undefined) return example
  if (Object.keys(properties).length > 0) {
    return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, exampleOf(schema)]))
  }
  if (items !== undefined) return [exampleOf(items)]
  return { string: 'x', integer: 1, number: 1, boolean: true, array: [], object: {} }[String([type].flat()[0])]
}

export type WorstBody = { readonly name: string; readonly type: string; readonly make: MakeText }

/** Every value in place of a body, and of each part of its example. */
export function worstBodies(example: unknown, yaml: boolean): WorstBody[] {
  const bodies: WorstBody[] = []
  const add = (name: string, make: MakeText, type = 'application/json') => bodies.push({ name, type, make })
  for (const [name, make] of Object.entries(JSON_VALUES)) {
    add(name, make)
    add(`${name}, cut off`, (bytes) => make(bytes).slice(0, -1))
  }
  const length = JSON.stringify(example ?? null).length
  for (const { at, value, before, after } of partsOf(example)) {
    const inside = (make: MakeText) => (bytes: number) => `${before}${make(Math.max(100, bytes - length))}${after}`
    for (const name of INSIDE) add(`${at}: ${name}`, inside(JSON_VALUES[name] as MakeText))
    if (isRule(value)) for (const [name, make] of Object.entries(RULE_FIELDS)) add(`${at}: ${name}`, inside(make))
    if (!Array.isArray(value) || value.length === 0) continue
    for (const item of [JSON.stringify(value[0]), '{}', 'null']) {
      for (const most of [100, 1000, 10_000, Number.POSITIVE_INFINITY]) {
        const list = (bytes: number) => {
          const count = Math.min(most, Math.floor(bytes / (item.length + 1)))
          return `[${Array<string>(count).fill(item).join(',')}]`
        }
        add(`${at}: ${most} of ${item.slice(0, 40)}`, inside(list))
      }
    }
  }
  if (yaml) for (const [name, make] of Object.entries(YAML_TEXTS)) add(`YAML, ${name}`, make, 'application/yaml')
  return bodies
}

type Part = { readonly at: string; readonly value: unknown; readonly before: string; readonly after: string }

/** The parts of a body, each with the JSON before and after it. The body itself is one if it is a rule. */
function partsOf(body: unknown): Part[] {
  const parts: Part[] = []
  const visit = (value: unknown, at: string, before: string, after: string) => {
    if (at !== '' || isRule(value)) parts.push({ at: at || 'body', value, before, after })
    if (typeof value !== 'object' || value === null) return
    const isList = Array.isArray(value)
    const entries = Object.entries(value)
    const label = (name: string) => (isList ? '' : `${JSON.stringify(name)}:`)
    const texts = entries.map(([name, inner]) => `${label(name)}${JSON.stringify(inner) ?? 'null'}`)
    entries.forEach(([name, inner], index) => {
      const start = `${isList ? '[' : '{'}${[...texts.slice(0, index), label(name)].join(',')}`
      const end = `${['', ...texts.slice(index + 1)].join(',')}${isList ? ']' : '}'}`
      visit(inner, at === '' ? name : `${at}.${name}`, before + start, end + after)
    })
  }
  visit(body, '', '', '')
  return parts
}

function isRule(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'limit' in value && 'rule_id' in value
}
