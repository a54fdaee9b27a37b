import { describe, expect, test, vi } from 'vitest'
import { withEnd, withHeaders } from './response.ts'

describe('headers are added', () => {
  test.each([
    ['to a fresh response in place', () => new Response('text', { status: 201 }), 'text', 201],
    ['to a copy of one that cannot be changed', () => Response.redirect('http://host/', 302), '', 302],
    ['to one without a body', () => new Response(null, { status: 204 }), '', 204],
  ] as const)('%s', async (_what, make, body, status) => {
    const response = withHeaders(make(), { 'X-Test': 'yes' })
    expect([response.headers.get('x-test'), response.status, await response.text()]).toEqual(['yes', status, body])
  })

  test('but not to a protocol switch, which cannot be copied', () => {
    const upgrade = { status: 101, headers: Object.freeze({}) } as Response
    expect(withHeaders(upgrade, { 'X-Test': 'yes' })).toBe(upgrade)
  })
})

describe('the end of a response', () => {
  const endless = () => new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(1)) })

  test('is reported when the body has been read', async () => {
    const done = vi.fn()
    const response = withEnd(new Response('text', { status: 201, headers: { a: 'b' } }), done)
    expect(done).not.toHaveBeenCalled()
    expect([response.status, response.headers.get('a'), await response.text()]).toEqual([201, 'b', 'text'])
    expect(done).toHaveBeenCalled()
  })

  test('is reported immediately without a body', () => {
    const done = vi.fn()
    withEnd(new Response(null), done)
    expect(done).toHaveBeenCalled()
  })

  test('is reported when the client cancels', async () => {
    const done = vi.fn()
    const response = withEnd(new Response(endless()), done)
    await response.body?.cancel()
    expect(done).toHaveBeenCalled()
  })

  test('is reported when the body fails', async () => {
    const done = vi.fn()
    const failing = new ReadableStream({ pull: () => Promise.reject(new Error('disk')) })
    await expect(withEnd(new Response(failing), done).text()).rejects.toThrow('disk')
    expect(done).toHaveBeenCalled()
  })
})
