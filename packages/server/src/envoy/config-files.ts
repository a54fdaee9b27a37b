// Loads a configuration of envoyproxy/ratelimit: one file, or every .yaml and .yml file of a folder. A domain belongs
// to one file. All errors are reported together, with file and line.

import { readdirSync, statSync } from 'node:fs'
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
  for (const file of configFiles(path)) {
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

/** Throws RULE_INVALID with every error. */
export function loadConfig(path: string): { config: EnvoyConfig; warnings: readonly string[] } {
  const { domains, findings } = lintConfigFiles(path)
  const errors = findings.filter(({ severity }) => severity === 'error')
  if (errors.length > 0) throw new LimiterError('RULE_INVALID', errors.map((one) => findingLine(one)).join('\n'))
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
  return [path, ...configFiles(path)].map((file) => `${file} ${fileFingerprint(file)}`).join('\n')
}

/** The file, or the files of the folder in the order of their names. */
function configFiles(path: string): string[] {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true) return [path]
  const names = readdirSync(path).filter((name) => /\.ya?ml$/.test(name) && !name.startsWith('.'))
  return names.sort().map((name) => join(path, name))
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
