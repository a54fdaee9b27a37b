// Loads a configuration of envoyproxy/ratelimit: one file, or every file of a folder and of its sub folders, whatever
// its ending, as the original does. A domain belongs to one file. All errors are reported together, with file and line.

import { type Dirent, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { LimiterError } from 'sluice'
import { shown } from '../problems/shown.ts'
import { fileFingerprint } from '../rules/file-watch.ts'
import { errorLine, fieldPrefix, readText } from '../rules/rule-file.ts'
import type { ConfigDomain, ConfigFinding } from './config-finding.ts'
import { lintConfig } from './config-lint.ts'
import { readConfig } from './config-reader.ts'
import { DescriptorTree } from './descriptor-tree.ts'

export type EnvoyConfig = { readonly domains: ReadonlyMap<string, DescriptorTree> }

export const NO_CONFIG: EnvoyConfig = { domains: new Map() }

export type FileFinding = ConfigFinding & { readonly file: string }

export type LintedConfig = { readonly domains: readonly ConfigDomain[]; readonly findings: readonly FileFinding[] }

/** Reads all files and collects every finding. An unreadable file is a finding too. */
export function lintConfigFiles(path: string): LintedConfig {
  const domains: ConfigDomain[] = []
  const findings: FileFinding[] = []
  const fileByDomain = new Map<string, string>()
  const { files, skipped } = configFiles(path)
  for (const [file, why] of skipped) findings.push(fileFinding(file, `not read: ${why}`))
  if (files.length === 0) findings.push(fileFinding(path, 'put a file into this folder: no domain has limits'))
  for (const file of files) {
    const { domain, findings: own } = readFile(file)
    findings.push(...own.map((finding) => ({ file, ...finding })))
    if (domain === undefined) continue
    findings.push(...lintConfig(domain).map((finding) => ({ file, ...finding })))
    const first = fileByDomain.get(domain.domain)
    if (first === undefined) {
      fileByDomain.set(domain.domain, file)
      domains.push(domain)
    } else {
      const fix = `put all descriptors of a domain into one file: ${first} has this domain`
      findings.push({ file, severity: 'error', line: domain.line, field: 'domain', value: domain.domain, fix })
    }
  }
  return { domains, findings }
}

export class EnvoyConfigInvalid extends LimiterError {
  constructor(lines: readonly string[]) {
    super('RULE_INVALID', lines.join('\n'))
  }
}

/** Throws EnvoyConfigInvalid with every error. */
export function loadConfig(path: string): { config: EnvoyConfig; warnings: readonly string[] } {
  const { domains, findings } = lintConfigFiles(path)
  const errors = findings.filter(({ severity }) => severity === 'error')
  if (errors.length > 0) throw new EnvoyConfigInvalid(errors.map((one) => findingLine(one)))
  const compiled = domains.map((one) => [one.domain, new DescriptorTree(one)] as const)
  return { config: { domains: new Map(compiled) }, warnings: findings.map((one) => findingLine(one)) }
}

/** `ratelimit.yaml:7: descriptors[0].rate_limit.unit: use one of second, … (got "fortnight")`. */
export function findingLine({ file, line, field, value, fix }: FileFinding, kind?: string): string {
  const place = field === 'file' ? file : `${file}:${line}`
  const location = kind === undefined ? place : `${place}: ${kind}`
  return value === undefined
    ? `${location}: ${fieldPrefix(location, field)}${fix}`
    : errorLine(location, { field, value: shown(value), fix })
}

/** Changes whenever a file of the configuration may have changed. */
export function configFingerprint(path: string): string {
  return [path, ...configFiles(path).files].map((file) => `${file} ${fileFingerprint(file)}`).join('\n')
}

type Listed = { readonly files: string[]; readonly skipped: [file: string, why: string][] }

/** The file, or the files of the folder in the order of their names. */
function configFiles(path: string): Listed {
  const listed: Listed = { files: [], skipped: [] }
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true) listFolder(path, listed)
  else listed.files.push(path)
  return listed
}

function listFolder(folder: string, listed: Listed): void {
  const { files, skipped } = listed
  let entries: Dirent[]
  try {
    entries = readdirSync(folder, { withFileTypes: true })
  } catch {
    files.push(folder) // reading it says why
    return
  }
  for (const entry of entries.sort(byName)) {
    const path = join(folder, entry.name)
    const isFile =
      entry.isFile() || (entry.isSymbolicLink() && !statSync(path, { throwIfNoEntry: false })?.isDirectory())
    // Kubernetes puts the files of a ConfigMap into ..<time>, and links to them.
    if (entry.name.startsWith('..')) continue
    if (entry.name.startsWith('.')) skipped.push([path, 'its name begins with a dot'])
    else if (entry.isDirectory()) listFolder(path, listed)
    else if (isFile) files.push(path)
    else skipped.push([path, entry.isSymbolicLink() ? 'links to folders are not followed' : 'it is not a file'])
  }
}

function byName(one: Dirent, other: Dirent): number {
  return one.name < other.name ? -1 : 1
}

function fileFinding(file: string, fix: string): FileFinding {
  return { file, severity: 'warning', line: 1, field: 'file', value: undefined, fix }
}

function readFile(file: string): ReturnType<typeof readConfig> {
  let text: string
  try {
    text = readText(file)
  } catch (error) {
    if (!(error instanceof LimiterError)) throw error
    const fix = error.fieldErrors.map((one) => one.fix).join('; ')
    return { domain: undefined, findings: [{ severity: 'error', line: 1, field: 'file', value: undefined, fix }] }
  }
  return readConfig(text)
}
