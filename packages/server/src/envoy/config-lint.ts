// Warnings about descriptors that no request reaches, or that have no effect. The matching order has traps: wildcards
// apply in the order of the file, and matching never leaves a branch that it entered.

import { type ConfigDomain, type ConfigFinding, type ConfigNode, isWildcard } from './config-finding.ts'
import { matchesWildcard } from './wildcard.ts'

export function lintConfig({ children }: ConfigDomain): ConfigFinding[] {
  const findings: ConfigFinding[] = []
  const nodes = flattened(children)
  const names = new Set(nodes.flatMap(({ rateLimit }) => rateLimit?.name || []))
  const work: Work = { comparisons: 0, findings }
  lintLevel(children, work)
  for (const node of nodes) {
    lintLevel(node.children, work)
    lintNode(node, names, findings)
  }
  return findings.sort((a, b) => a.line - b.line)
}

function flattened(nodes: readonly ConfigNode[]): ConfigNode[] {
  return nodes.flatMap((node) => [node, ...flattened(node.children)])
}

function lintNode(node: ConfigNode, names: ReadonlySet<string>, findings: ConfigFinding[]): void {
  const { rateLimit, children, line, field } = node
  if (rateLimit === undefined && children.length === 0)
    findings.push(warning(line, field, node.composite, 'no effect: give it a rate_limit or nested descriptors'))
  for (const [name, isSet] of [
    ['shadow_mode', node.shadowMode],
    ['quota_mode', node.quotaMode],
  ] as const) {
    if (isSet && rateLimit?.unit === undefined)
      findings.push(warning(line, `${field}.${name}`, true, 'no effect: the descriptor has no limit of its own'))
  }
  for (const replaced of rateLimit?.replaces ?? []) {
    if (names.has(replaced)) continue
    const fix = 'no effect: no limit of this domain has this name'
    findings.push(warning(rateLimit?.line ?? line, `${field}.rate_limit.replaces`, replaced, fix))
  }
}

/** Comparisons with wildcards in one file: those of thousands of wildcards with each other would block the process. */
const COMPARISONS_MAX = 1_000_000

type Work = { comparisons: number; readonly findings: ConfigFinding[] }

type Level = {
  /** In the order of the file. */
  readonly wildcards: readonly ConfigNode[]
  /** Siblings of each key that are less specific than one with a value: wildcards, and the key alone. */
  readonly lessSpecific: ReadonlyMap<string, readonly ConfigNode[]>
}

/** Finds siblings that hide other siblings. Linear in the number of siblings without wildcards. */
function lintLevel(siblings: readonly ConfigNode[], work: Work): void {
  const wildcards: ConfigNode[] = []
  const lessSpecific = new Map<string, ConfigNode[]>()
  for (const node of siblings) {
    const isPattern = isWildcard(node)
    if (isPattern) wildcards.push(node)
    if (!isPattern && node.value !== undefined) continue
    const others = lessSpecific.get(node.key)
    if (others === undefined) lessSpecific.set(node.key, [node])
    else others.push(node)
  }
  const level: Level = { wildcards, lessSpecific }
  for (const node of siblings) {
    const hiding = hidingOf(node, level, work)
    if (hiding === undefined) lintBranch(node, level, work)
    else {
      const fix = `unreachable: line ${hiding.line} (${hiding.composite}) matches first`
      work.findings.push(warning(node.line, node.field, node.composite, fix))
    }
  }
}

/** An exact value is looked up first, wildcards in the order of the file, a key without a value last. */
function hidingOf(node: ConfigNode, { wildcards }: Level, work: Work): ConfigNode | undefined {
  if (!isWildcard(node) && node.value !== undefined) return undefined
  const text = isWildcard(node) ? node.composite : `${node.key}_*`
  for (const one of wildcards) {
    if (one === node || isOver(work)) return undefined // those after it come too late to hide it
    if (isMatch(one, text, work)) return one
  }
  return undefined
}

/** Requests that enter this branch never reach the nested descriptors of a less specific sibling. */
function lintBranch(node: ConfigNode, { lessSpecific }: Level, work: Work): void {
  if (node.value === undefined || isWildcard(node)) return
  const own = new Set(node.children.map(({ composite }) => composite))
  for (const other of lessSpecific.get(node.key) ?? []) {
    if (isOver(work)) return
    if (other.value !== undefined && !isMatch(other, node.composite, work)) continue
    const missed = other.children.find(({ composite }) => !own.has(composite))
    if (missed === undefined) continue
    const reason = `requests that match it never reach ${missed.composite} in line ${missed.line}`
    const fix = `${reason}: repeat that descriptor here`
    work.findings.push(warning(node.line, node.field, node.composite, fix))
    return
  }
}

function isOver({ comparisons }: Work): boolean {
  return comparisons >= COMPARISONS_MAX
}

/** False at the cap of comparisons: a warning says so. */
function isMatch(wildcard: ConfigNode, text: string, work: Work): boolean {
  work.comparisons += 1
  if (!isOver(work)) return matchesWildcard(wildcard.composite, text)
  const fix = 'use fewer wildcards: not all descriptors of this file were checked for others that they hide'
  work.findings.push(warning(wildcard.line, wildcard.field, wildcard.composite, fix))
  return false
}

function warning(line: number, field: string, value: unknown, fix: string): ConfigFinding {
  return { severity: 'warning', line, field, value, fix }
}
