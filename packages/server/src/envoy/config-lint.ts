// Warnings about descriptors that no request reaches, or that have no effect. The matching order has traps: wildcards
// apply in the order of the file, and matching never leaves a branch that it entered.

import { type ConfigDomain, type ConfigFinding, type ConfigNode, isWildcard } from './config-finding.ts'
import { matchesWildcard } from './wildcard.ts'

export function lintConfig({ children }: ConfigDomain): ConfigFinding[] {
  const findings: ConfigFinding[] = []
  const nodes = flattened(children)
  const names = new Set(nodes.flatMap(({ rateLimit }) => rateLimit?.name || []))
  lintLevel(children, findings)
  for (const node of nodes) {
    lintLevel(node.children, findings)
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

/** Finds siblings that hide other siblings. */
function lintLevel(siblings: readonly ConfigNode[], findings: ConfigFinding[]): void {
  const wildcards = siblings.filter(isWildcard)
  for (const [index, node] of siblings.entries()) {
    const earlier = wildcards.filter((one) => siblings.indexOf(one) < index)
    const hidden = hidingOf(node, wildcards, earlier)
    if (hidden !== undefined) {
      const fix = `unreachable: line ${hidden.line} (${hidden.composite}) matches first`
      findings.push(warning(node.line, node.field, node.composite, fix))
      continue
    }
    lintBranch(node, siblings, findings)
  }
}

/** An exact value is looked up first, wildcards in the order of the file, a key without a value last. */
function hidingOf(node: ConfigNode, wildcards: readonly ConfigNode[], earlier: readonly ConfigNode[]) {
  if (isWildcard(node)) return earlier.find(({ composite }) => matchesWildcard(composite, node.composite))
  if (node.value !== undefined) return undefined
  return wildcards.find(({ composite }) => matchesWildcard(composite, `${node.key}_*`))
}

/** Requests that enter this branch never reach the nested descriptors of a less specific sibling. */
function lintBranch(node: ConfigNode, siblings: readonly ConfigNode[], findings: ConfigFinding[]): void {
  if (node.value === undefined || isWildcard(node)) return
  const own = new Set(node.children.map(({ composite }) => composite))
  const lessSpecific = siblings.filter((other) => {
    return other.key === node.key && other !== node && (other.value === undefined || matches(other, node))
  })
  for (const other of lessSpecific) {
    const missed = other.children.find(({ composite }) => !own.has(composite))
    if (missed === undefined) continue
    const reason = `requests that match it never reach ${missed.composite} in line ${missed.line}`
    const fix = `${reason}: repeat that descriptor here`
    findings.push(warning(node.line, node.field, node.composite, fix))
    return
  }
}

function matches(other: ConfigNode, node: ConfigNode): boolean {
  return isWildcard(other) && matchesWildcard(other.composite, node.composite)
}

function warning(line: number, field: string, value: unknown, fix: string): ConfigFinding {
  return { severity: 'warning', line, field, value, fix }
}
