// Reads one YAML file of envoyproxy/ratelimit, with its 16 keys. Strict, as the original: an unknown key or an invalid
// value rejects the file. So does a text that its YAML parser reads in another way than others. No file can block the
// process: its size, its depth, and the number of values that aliases and merge keys repeat have limits.

import { nearest, suggestion } from 'sluice'
import { isAlias, isMap, isScalar, isSeq, type Node, type YAMLMap } from 'yaml'
import { ambiguityOf } from '../rules/source-text.ts'
import { parseYaml, type YamlDocument, YamlTooComplex } from '../rules/yaml-document.ts'
import type { ConfigDomain, ConfigFinding, ConfigLimit, ConfigNode } from './config-finding.ts'
import { UINT32_MAX } from './rate-limit-response.ts'
import { UNIT_NAMES, unitNamed } from './units.ts'

const ROOT_KEYS: readonly string[] = ['domain', 'descriptors']
const DESCRIPTOR_KEYS: readonly string[] = [
  ...['key', 'value', 'rate_limit', 'descriptors', 'shadow_mode', 'quota_mode'],
  ...['detailed_metric', 'value_to_metric', 'share_threshold', 'metadata'],
]
const LIMIT_KEYS: readonly string[] = ['unit', 'requests_per_unit', 'unlimited', 'name', 'replaces']
const REPLACES_KEYS: readonly string[] = ['name']
export const CONFIG_KEYS: readonly string[] = [...new Set([...ROOT_KEYS, ...DESCRIPTOR_KEYS, ...LIMIT_KEYS])]

/** Aliases and merge keys can multiply a small text: nodes that are read again, long texts as several. */
const REPEATED_MAX = 200_000
const REPEATED_LENGTH = 64
/** Far more levels than a request has entries, or metadata needs. */
const DEPTH_MAX = 64
const ERRORS_MAX = 100
const TRUE: readonly string[] = ['true', 'yes', 'y', 'on']
const FALSE: readonly string[] = ['false', 'no', 'n', 'off']
/** Every parser of numbers reads these as envoyproxy/ratelimit does, if it knows them. */
const NUMBER = /^\+?(0|[1-9][\d_]*|0x[\da-f_]+|0o[0-7_]+|0b[01_]+)$/i
const LEADING_ZERO = /^\+?0[\d_]+$/

/** A text without this that is no YAML either is another kind of file. */
const ROOT_KEY = /(^|[\s{,])["']?(domain|descriptors)["']?\s*:/
const NO_CONFIGURATION: ConfigFinding = {
  severity: 'error',
  line: 1,
  field: 'file',
  value: undefined,
  fix:
    'not a configuration: give domain and descriptors, or move the file away. Every file of a folder is read, ' +
    'whatever its name',
}

export type ReadConfig = {
  /** Undefined if the file has errors. */
  readonly domain: ConfigDomain | undefined
  readonly findings: readonly ConfigFinding[]
}

export function readConfig(text: string): ReadConfig {
  let document: YamlDocument
  try {
    document = parseYaml(text, { merge: true })
  } catch (error) {
    if (!(error instanceof YamlTooComplex)) throw error
    return { domain: undefined, findings: [complexFinding(error, 1)] }
  }
  const syntax = document.mistakes.map(({ line, why }): ConfigFinding => {
    return { severity: 'error', line, field: `line ${line}`, value: undefined, fix: `fix the YAML syntax: ${why}` }
  })
  if (syntax.length > 0) return { domain: undefined, findings: ROOT_KEY.test(text) ? syntax : [NO_CONFIGURATION] }
  const reader = new ConfigReader(document)
  try {
    const domain = reader.read()
    const hasErrors = reader.findings.some(({ severity }) => severity === 'error')
    return { domain: hasErrors ? undefined : domain, findings: reader.findings }
  } catch (error) {
    if (!(error instanceof YamlTooComplex)) throw error
    return { domain: undefined, findings: [complexFinding(error, reader.line), ...reader.findings] }
  }
}

function complexFinding({ message }: YamlTooComplex, line: number): ConfigFinding {
  return { severity: 'error', line, field: 'file', value: undefined, fix: message }
}

type Field = { readonly node: unknown; readonly line: number }
type Fields = ReadonlyMap<string, Field>

/** Place of a `<<`. */
type MergeKey = { readonly prefix: string; readonly known: readonly string[]; readonly line: number }

type Metadata = Readonly<Record<string, unknown>>

const NO_FIELDS: Fields = new Map()

class ConfigReader {
  readonly findings: ConfigFinding[] = []
  readonly #document: YamlDocument
  /** Fields of merged maps, by the keys that apply there; undefined while a map is being read. */
  readonly #merged = new Map<readonly string[], Map<unknown, Fields | undefined>>()
  /** By the map that was read: descriptors with aliases of one map share its value. */
  readonly #metadataByMap = new Map<YAMLMap, Metadata | undefined>()
  /** Lists and maps that are being read, from the outermost to the innermost. */
  readonly #open = new Set<unknown>()
  readonly #visited = new Set<unknown>()
  #repeated = 0
  /** Line of the descriptor that is being read. */
  line = 1

  constructor(document: YamlDocument) {
    this.#document = document
  }

  read(): ConfigDomain {
    const root = this.#document.document.contents
    if (!isConfiguration(root)) {
      this.findings.push(NO_CONFIGURATION)
      return { domain: '', line: 1, children: [] }
    }
    const fields = this.#fields(root, '', ROOT_KEYS)
    const domain = this.#text(fields, 'domain', '') ?? ''
    if (domain === '') this.#error(this.#document.lineOf(root), 'domain', domain, 'give the domain that Envoy sends')
    return { domain, line: fields.get('domain')?.line ?? 1, children: this.#descriptors(fields, '') }
  }

  #descriptors(fields: Fields, parent: string): ConfigNode[] {
    const list = fields.get('descriptors')
    if (list === undefined) return []
    const node = this.#resolved(list.node)
    const field = `${parent}descriptors`
    if (isEmpty(node)) return []
    if (!isSeq(node)) {
      this.#error(list.line, field, this.#shown(node), 'give a list of descriptors')
      return []
    }
    return this.#nested(node, field, list.line, () => this.#list(node.items, field, list.line)) ?? []
  }

  /** Reads a list or map, unless an alias inside it leads here again. */
  #nested<T>(node: unknown, field: string, line: number, read: () => T): T | undefined {
    const isCycle = this.#open.has(node)
    if (isCycle || this.#open.size >= DEPTH_MAX) {
      const fix = isCycle ? 'remove the alias: its anchor contains itself' : `nest at most ${DEPTH_MAX} levels`
      this.#error(line, field, undefined, fix)
      return undefined
    }
    this.#open.add(node)
    const value = read()
    this.#open.delete(node)
    return value
  }

  /** Throws YamlTooComplex. Only what is read again counts: the rest is in proportion to the text. */
  #visit(node: unknown): void {
    if (typeof node !== 'object' || node === null) return
    if (!this.#visited.has(node)) {
      this.#visited.add(node)
      return
    }
    this.#repeated += 1 + (isScalar(node) ? Math.floor((node.source?.length ?? 0) / REPEATED_LENGTH) : 0)
    if (this.#repeated <= REPEATED_MAX) return
    throw new YamlTooComplex(`use fewer aliases: here, they repeat more than ${REPEATED_MAX} values of this file`)
  }

  #list(items: readonly unknown[], field: string, line: number): ConfigNode[] {
    const lineByComposite = new Map<string, number>()
    return items.flatMap((item, index) => {
      const read = this.#descriptor(item, `${field}[${index}]`, line)
      if (read === undefined) return []
      const first = lineByComposite.get(read.composite)
      if (first === undefined) lineByComposite.set(read.composite, read.line)
      else this.#error(read.line, read.field, read.composite, `remove it: line ${first} has the same key and value`)
      return read
    })
  }

  #descriptor(item: unknown, field: string, parentLine: number): ConfigNode | undefined {
    const node = this.#resolved(item)
    const line = this.#document.lineOf(item) ?? parentLine
    this.line = line
    this.#visit(node)
    if (!isMap(node)) {
      this.#error(line, field, this.#shown(node), 'give a map with at least a key')
      return undefined
    }
    const fields = this.#fields(node, `${field}.`, DESCRIPTOR_KEYS)
    const key = this.#text(fields, 'key', `${field}.`) ?? ''
    const value = this.#text(fields, 'value', `${field}.`) || undefined
    if (key === '') this.#error(line, `${field}.key`, key, 'give the key of a descriptor entry')
    const composite = value === undefined ? key : `${key}_${value}`
    const flag = (name: string) => this.#flag(fields, name, `${field}.`)
    const shareThreshold = flag('share_threshold')
    if (shareThreshold && !composite.includes('*')) {
      const fix = 'remove it, or use a wildcard (*): only the matches of a wildcard can share a counter'
      this.#error(fields.get('share_threshold')?.line ?? line, `${field}.share_threshold`, true, fix)
    }
    return {
      ...{ line, field, key, value, composite, shareThreshold },
      rateLimit: this.#rateLimit(fields, `${field}.rate_limit`),
      shadowMode: flag('shadow_mode'),
      quotaMode: flag('quota_mode'),
      detailedMetric: flag('detailed_metric'),
      valueToMetric: flag('value_to_metric'),
      metadata: this.#metadata(fields, `${field}.metadata`),
      children: this.#descriptors(fields, `${field}.`),
    }
  }

  #rateLimit(descriptor: Fields, field: string): ConfigLimit | undefined {
    const given = descriptor.get('rate_limit')
    if (given === undefined || isEmpty(this.#resolved(given.node))) return undefined
    const { line } = given
    const fields = this.#fields(this.#resolved(given.node), `${field}.`, LIMIT_KEYS, line)
    const unlimited = this.#flag(fields, 'unlimited', `${field}.`)
    const unit = this.#text(fields, 'unit', `${field}.`) || undefined
    const unitLine = fields.get('unit')?.line ?? line
    if (unlimited && unit !== undefined)
      this.#error(unitLine, `${field}.unit`, unit, 'remove it: the limit is unlimited')
    if (!unlimited && (unit === undefined || unitNamed(unit) === undefined)) {
      const hint = unit === undefined ? '' : suggestion(unit.toLowerCase(), UNIT_NAMES)
      this.#error(unitLine, `${field}.unit`, unit, `use one of ${UNIT_NAMES.join(', ')}${hint}`)
    }
    const name = this.#text(fields, 'name', `${field}.`) ?? ''
    return {
      line,
      unit: unlimited ? undefined : unit?.toLowerCase(),
      requestsPerUnit: this.#requestsPerUnit(fields, field, unlimited),
      name,
      replaces: this.#replaces(fields, field, name),
    }
  }

  #requestsPerUnit(fields: Fields, field: string, unlimited: boolean): number {
    const given = fields.get('requests_per_unit')
    if (given === undefined) return 0
    if (unlimited)
      this.#warning(given.line, `${field}.requests_per_unit`, undefined, 'no effect: the limit is unlimited')
    const text = this.#text(fields, 'requests_per_unit', `${field}.`) ?? ''
    const node = this.#resolved(given.node)
    if (isEmpty(node)) return 0
    const isPlain = isScalar(node) && node.type === 'PLAIN'
    const value = isPlain && NUMBER.test(text) ? Number(text.replace(/[+_]/g, '')) : Number.NaN
    if (value <= UINT32_MAX) return value
    const hint = isPlain ? leadingZeroFix(text) : ''
    const fix = `give a whole number from 0 to ${UINT32_MAX}, in digits without quotes${hint}`
    this.#error(given.line, `${field}.requests_per_unit`, text, fix)
    return 0
  }

  #replaces(fields: Fields, field: string, own: string): string[] {
    const given = fields.get('replaces')
    if (given === undefined) return []
    const node = this.#resolved(given.node)
    if (isEmpty(node)) return []
    if (!isSeq(node)) {
      this.#error(given.line, `${field}.replaces`, this.#shown(node), 'give a list such as [{ name: other }]')
      return []
    }
    return node.items.flatMap((item, index) => {
      this.#visit(this.#resolved(item))
      const at = `${field}.replaces[${index}].`
      const replaced = this.#text(this.#fields(this.#resolved(item), at, REPLACES_KEYS, given.line), 'name', at) ?? ''
      const line = this.#document.lineOf(item) ?? given.line
      if (replaced === '') this.#error(line, `${at}name`, replaced, 'give the name of another limit')
      else if (replaced === own) this.#error(line, `${at}name`, replaced, 'name another limit: this is its own name')
      return replaced
    })
  }

  #metadata(fields: Fields, field: string): Metadata | undefined {
    const given = fields.get('metadata')
    const node = given && this.#resolved(given.node)
    if (given === undefined || isEmpty(node)) return undefined
    if (!isMap(node)) {
      this.#error(given.line, field, this.#shown(node), 'give a map')
      return undefined
    }
    if (!this.#metadataByMap.has(node)) this.#metadataByMap.set(node, this.#record(node, field, given.line))
    return this.#metadataByMap.get(node)
  }

  /** A plain value: text, number, list, map, … */
  #value(node: unknown, field: string, parentLine: number): unknown {
    const line = this.#document.lineOf(node) ?? parentLine
    const resolved = this.#resolved(node)
    this.#visit(resolved)
    if (isMap(resolved)) return this.#record(resolved, field, line)
    if (isSeq(resolved)) {
      const items = () => resolved.items.map((item, index) => this.#value(item, `${field}[${index}]`, line))
      return this.#nested(resolved, field, line, items)
    }
    if (!isScalar(resolved)) return null
    const fix = ambiguityOf(resolved)
    if (fix !== undefined) this.#error(line, field, resolved.source, fix)
    return resolved.value
  }

  #record(map: YAMLMap, field: string, line: number): Metadata | undefined {
    return this.#nested(map, field, line, () => {
      const values = new Map<string, unknown>()
      for (const [index, { key, value }] of map.items.entries()) {
        const name = this.#resolved(key)
        if (isMergeKey(key)) {
          if (index > 0) this.#error(line, `${field}.<<`, undefined, 'put it before all other fields, once')
          this.#mergeValues(values, value, `${field}.<<`, line)
        } else if (isScalar(name)) {
          const at = `${field}.${name.source ?? name.value}`
          this.#value(key, at, line)
          values.set(String(name.value ?? ''), this.#value(value, at, line))
        } else this.#error(line, field, undefined, 'give each field a text as its name')
      }
      return Object.fromEntries(values)
    })
  }

  #mergeValues(values: Map<string, unknown>, merged: unknown, field: string, line: number): void {
    for (const map of this.#mergedMaps(merged)) {
      if (!isMap(map)) this.#error(line, field, this.#shown(map), 'give a map')
      else {
        for (const [name, value] of Object.entries(this.#record(map, field, line) ?? {})) {
          this.#visit(map) // merged maps that merge others copy all of their values
          if (!values.has(name)) values.set(name, value)
        }
      }
    }
  }

  /** Fields of a map by name. An unknown name is an error; a known one in the wrong place has no effect. */
  #fields(node: unknown, prefix: string, known: readonly string[], parentLine?: number): Fields {
    if (!isMap(node)) {
      const line = this.#document.lineOf(node) ?? parentLine ?? 1
      this.#error(line, prefix.slice(0, -1) || 'file', this.#shown(node), `give a map of ${known.join(', ')}`)
      return NO_FIELDS
    }
    const fields = new Map<string, Field>()
    for (const pair of node.items) {
      this.#visit(pair)
      const { key, value } = pair
      const line = this.#document.lineOf(key) ?? parentLine ?? 1
      const name = isScalar(key) ? String(key.source ?? key.value) : ''
      const given = fields.get(name)
      if (isMergeKey(key)) this.#merge(fields, value, { prefix, known, line })
      else if (known.includes(name)) {
        fields.set(name, { node: value, line })
        if (given !== undefined) this.#requireSameKeys(given.node, value, `${prefix}${name}`, line)
      } else if (CONFIG_KEYS.includes(name)) {
        // A common place for a map that others merge.
        if ((value as Node | null)?.anchor === undefined)
          this.#warning(line, `${prefix}${name}`, undefined, `no effect here: the keys here are ${known.join(', ')}`)
      } else {
        const fix = `unknown key${suggestion(name, known) || `; the keys here are ${known.join(', ')}`}`
        this.#error(line, `${prefix}${name}`, this.#shown(value), fix)
      }
    }
    return fields
  }

  /** Adds the fields of `<<: *map` or `<<: [*first, *second]`: of the first map that has them. */
  #merge(fields: Map<string, Field>, value: unknown, { prefix, known, line }: MergeKey): void {
    const merged = new Map<string, Field>()
    for (const one of this.#mergedMaps(value)) {
      for (const [name, field] of this.#mergedFields(one, { prefix, known, line })) {
        const first = merged.get(name)
        if (first === undefined) merged.set(name, field)
        else this.#requireSameKeys(field.node, first.node, `${prefix}${name}`, line)
      }
    }
    for (const [name, field] of merged) {
      if (!fields.has(name)) fields.set(name, field)
      else
        this.#error(line, `${prefix}${name}`, undefined, `put << before it: parsers differ in which of the two counts`)
    }
  }

  /** Read once for each map, whatever merges it: merged maps can merge others. */
  #mergedFields(map: unknown, { prefix, known, line }: MergeKey): Fields {
    const read = this.#merged.get(known) ?? new Map<unknown, Fields | undefined>()
    this.#merged.set(known, read)
    if (read.has(map)) {
      const fields = read.get(map)
      if (fields === undefined) this.#error(line, `${prefix}<<`, undefined, 'remove it: the map merges itself')
      return fields ?? NO_FIELDS
    }
    read.set(map, undefined)
    const fields = this.#fields(map, `${prefix}<<.`, known, line)
    read.set(map, fields)
    return fields
  }

  /** A map that replaces a merged one: envoyproxy/ratelimit keeps the keys that only the merged one has. */
  #requireSameKeys(replaced: unknown, by: unknown, field: string, line: number): void {
    const [before, after] = [this.#resolved(replaced), this.#resolved(by)]
    if (!isMap(before) || !isMap(after) || before === after) return
    const given = new Set(this.#keysOf(after))
    for (const name of this.#keysOf(before)) {
      if (given.has(name)) continue
      const fix = 'give it here too: parsers differ in whether the merged value stays'
      this.#error(line, `${field}.${name}`, undefined, fix)
      return
    }
  }

  /** Names of the fields of a map, and of the maps that it merges. */
  *#keysOf(map: unknown, seen: Set<unknown> = new Set()): Generator<string> {
    if (!isMap(map) || seen.has(map)) return
    seen.add(map)
    for (const pair of map.items) {
      this.#visit(pair)
      const { key, value } = pair
      if (isMergeKey(key)) for (const one of this.#mergedMaps(value)) yield* this.#keysOf(one, seen)
      else if (isScalar(key)) yield String(key.source ?? key.value)
    }
  }

  /** Values of a `<<`. */
  #mergedMaps(value: unknown): unknown[] {
    const node = this.#resolved(value)
    return (isSeq(node) ? node.items : [node]).map((one) => {
      const map = this.#resolved(one)
      this.#visit(map)
      return map
    })
  }

  /** Text of a scalar as written: the value `1.0` stays `1.0`. Undefined if the field is absent. */
  #text(fields: Fields, name: string, prefix: string): string | undefined {
    const given = fields.get(name)
    if (given === undefined) return undefined
    const node = this.#resolved(given.node)
    this.#visit(node)
    if (isEmpty(node)) return ''
    if (isScalar(node)) return typeof node.value === 'string' ? node.value : String(node.source ?? node.value)
    this.#error(given.line, `${prefix}${name}`, this.#shown(node), 'give a text or a number')
    return ''
  }

  #flag(fields: Fields, name: string, prefix: string): boolean {
    const text = this.#text(fields, name, prefix)?.toLowerCase()
    if (text === undefined || text === '' || FALSE.includes(text)) return false
    if (TRUE.includes(text)) return true
    this.#error(fields.get(name)?.line ?? 1, `${prefix}${name}`, text, 'use true or false')
    return false
  }

  #resolved(node: unknown): unknown {
    return isAlias(node) ? this.#document.resolve(node) : node
  }

  /** Scalars only: a map may be large. */
  #shown(node: unknown): unknown {
    return isScalar(node) ? node.value : undefined
  }

  #error(line: number | undefined, field: string, value: unknown, fix: string): void {
    if (this.findings.length < ERRORS_MAX) this.findings.push({ severity: 'error', line: line ?? 1, field, value, fix })
  }

  #warning(line: number, field: string, value: unknown, fix: string): void {
    if (this.findings.length < ERRORS_MAX) this.findings.push({ severity: 'warning', line, field, value, fix })
  }
}

/** False for other files, such as a README, whose contents would be one mistake each. */
function isConfiguration(root: unknown): boolean {
  if (!isMap(root)) return false
  return root.items.some(({ key }) => {
    const name = isScalar(key) ? String(key.source ?? key.value) : ''
    return isMergeKey(key) || CONFIG_KEYS.includes(name) || nearest(name, ROOT_KEYS) !== undefined
  })
}

function isEmpty(node: unknown): boolean {
  return node === null || node === undefined || (isScalar(node) && node.value === null)
}

function isMergeKey(key: unknown): boolean {
  return isScalar(key) && typeof key.value === 'symbol'
}

function leadingZeroFix(text: string): string {
  if (!LEADING_ZERO.test(text)) return ''
  const digits = text.replace(/[+_]/g, '')
  const octal = Number(`0o${digits.slice(1)}`)
  const decimal = Number(digits)
  if (Number.isNaN(octal) || octal === decimal) return `: write ${decimal}`
  return `: write ${octal}, as envoyproxy/ratelimit reads ${text}, or ${decimal}, as others do`
}
