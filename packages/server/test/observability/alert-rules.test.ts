import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { anchorsOf } from '../../../../scripts/links.ts'
import { promtool, RULES_FOLDER, ruleFiles } from './prometheus-process.ts'
import { deployedRules, namesIn } from './queries.ts'

const ROOT = fileURLToPath(new URL('../../../../', import.meta.url))
const ALERTS = deployedRules().flatMap((rule) => (rule.alert === undefined ? [] : [{ ...rule, alert: rule.alert }]))
const FILES = readdirSync(RULES_FOLDER)
const TESTS = FILES.filter((name) => name.endsWith('.test.yaml')).map((name) => join(RULES_FOLDER, name))

test('deploy/prometheus holds rule files and their tests only', () => {
  expect(FILES.filter((name) => !/\.(rules|test)\.yaml$/.test(name))).toEqual([])
})

test('promtool accepts the rules', () => {
  const { code, output } = promtool(['check', 'rules', ...ruleFiles()])
  expect(output).not.toContain('FAILED')
  expect(code).toBe(0)
})

test('every alert fires, and stays silent below its threshold', () => {
  const { code, output } = promtool(['test', 'rules', ...TESTS])
  expect(output).not.toContain('FAILED')
  expect(code).toBe(0)
})

describe('alerts', () => {
  type Case = { alertname: string; exp_alerts?: unknown[] }
  const cases = TESTS.flatMap((file) => {
    const { tests } = parse(readFileSync(file, 'utf8')) as { tests: { alert_rule_test: Case[] }[] }
    return tests.flatMap(({ alert_rule_test }) => alert_rule_test)
  })

  test.each(ALERTS)('$alert has a test that fires it and one that does not', ({ alert }) => {
    const own = cases.filter(({ alertname }) => alertname === alert)
    expect(own.some(({ exp_alerts = [] }) => exp_alerts.length > 0)).toBe(true)
    expect(own.some(({ exp_alerts = [] }) => exp_alerts.length === 0)).toBe(true)
  })

  test.each(ALERTS)('$alert has a severity, a text, and a runbook that exists', ({ labels = {}, annotations = {} }) => {
    expect(['critical', 'warning']).toContain(labels.severity)
    expect(annotations.summary).toBeTruthy()
    expect(annotations.description).toBeTruthy()
    const [file = '', anchor] = (annotations.runbook_url ?? '').split('#')
    expect(file).toMatch(/^docs\//)
    expect(anchorsOf(readFileSync(join(ROOT, file), 'utf8'))).toContain(anchor)
  })

  test.each(ALERTS)('$alert is explained in docs/guides/observability.md', ({ alert }) => {
    expect(readFileSync(join(ROOT, 'docs/guides/observability.md'), 'utf8')).toContain(`\`${alert}\``)
  })

  test('each SLO has a fast and a slow alert', () => {
    const slos = ALERTS.flatMap(({ labels = {} }) =>
      labels.slo === undefined ? [] : [`${labels.slo} ${labels.severity}`],
    )
    const expected = ['availability', 'latency', 'propagation', 'drift'].flatMap((slo) => [
      `${slo} critical`,
      `${slo} warning`,
    ])
    expect(slos.sort()).toEqual(expected.sort())
  })
})

test('rules use no recorded series that does not exist', () => {
  const rules = deployedRules()
  const recorded = new Set(rules.flatMap(({ record = [] }) => record))
  const used = rules.flatMap(({ expr }) => namesIn(expr)).filter((name) => name.includes(':'))
  expect(used.filter((name) => !recorded.has(name))).toEqual([])
})
