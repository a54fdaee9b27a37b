import { describe, expect, test } from 'vitest'
import { GATEWAY_SETTINGS, type GatewaySettings } from '../../src/gateway/settings.ts'
import { readSettings } from '../../src/settings/command-line.ts'
import { openGateway } from './setup.ts'

function settingsOf(args: string[], env: Record<string, string> = {}): GatewaySettings {
  const command = readSettings(GATEWAY_SETTINGS, args, env)
  if (command.kind !== 'serve')
    throw new Error(command.fieldErrors.map(({ field, fix }) => `${field}: ${fix}`).join('\n'))
  return command.settings
}

describe('settings of the gateway', () => {
  test('defaults: layer edge, port 8000 on loopback; accepts the settings of the service too', () => {
    expect(settingsOf(['--redis', 'redis://h'])).toMatchObject({
      layer: 'edge',
      listen: { host: '127.0.0.1', port: 8000 },
      port: 8080,
      redis: 'redis://h',
    })
    expect(settingsOf(['--listen', '[::]:443']).listen).toEqual({ host: '::', port: 443 })
  })

  test.each(['host', 'port'] as const)(
    '--%s is refused, because it is not that of the proxy: two names instead',
    (name) => {
      const fix = `give --listen <address>:<port> to proxy on, or --api-${name} for the API, health checks and metrics`
      const [value, variable] = [name === 'port' ? '3000' : '0.0.0.0', `SLUICE_${name.toUpperCase()}`]
      for (const args of [[`--${name}`, value], [`--${name}=${value}`]])
        expect(() => settingsOf(args)).toThrow(new Error(`--${name}: ${fix}`))
      expect(() => settingsOf([], { [variable]: value })).toThrow(new Error(`${variable}: ${fix}`))
      expect(settingsOf([], { [variable]: '' }), 'an empty variable is unset').toMatchObject({ port: 8080 })
      const given = name === 'port' ? 3000 : value
      expect(settingsOf([`--api-${name}`, value])).toMatchObject({ [name]: given, listen: { port: 8000 } })
      expect(settingsOf([], { [`SLUICE_API_${name.toUpperCase()}`]: value })).toMatchObject({ [name]: given })
    },
  )

  test('routes are given by repeated flags, or all in one variable', () => {
    const [api, shop] = ['/api//v1/=http://a:1', 'Shop.Example/=https://b']
    const routes = [
      { host: undefined, prefix: '/api/v1', upstream: new URL('http://a:1') },
      { host: 'shop.example', prefix: '/', upstream: new URL('https://b') },
    ]
    expect(settingsOf(['--route', api, '--route', shop]).routes).toEqual(routes)
    expect(settingsOf([], { SLUICE_ROUTES: `${api}, ${shop}` }).routes).toEqual(routes)
  })

  test.each([
    [['--upstream', 'localhost:3000'], '--upstream: give a URL without a path'],
    [['--upstream', 'http://a/path'], '--upstream: give a URL without a path'],
    [['--upstream', 'http://me@a'], '--upstream: remove the user and password'],
    [['--upstream', 'ftp://a'], '--upstream: give a URL without a path'],
    [['--route', 'api=http://a'], '--route: give /api=http'],
    [['--route', '/api=http://a/b'], '--route: give /api=http'],
    [['--listen', '8000'], '--listen: give an address and a port'],
    [['--listen', 'a:99999'], '--listen: give an address and a port'],
    [['--listen-cert', 'package.json'], '--listen-cert: remove it, or give --listen-key'],
    [['--listen-client-ca', 'package.json'], '--listen-client-ca: remove it, or give --listen-cert'],
    [['--upstrem', 'http://a'], '--upstrem: unknown flag; did you mean --upstream?'],
  ])('%j: %s', (args, message) => {
    expect(() => settingsOf(args)).toThrow(message)
  })

  test.each([
    ['--upstream', 'http://u:hunter2@host'],
    ['--upstream', 'u:hunter2@host:3000'],
    ['--route', '/api=http://u:hunter2@host'],
  ])('credentials in %s are rejected and not printed', (flag, url) => {
    const command = readSettings(GATEWAY_SETTINGS, [flag, url], {})
    const fix = expect.stringContaining('remove the user and password')
    expect(command).toEqual({ kind: 'wrong', fieldErrors: [{ field: flag, value: undefined, fix }] })
  })

  test('without an upstream it does not start', async () => {
    await expect(openGateway([], {})).rejects.toThrow('--upstream: give the URL of the upstream')
  })
})
