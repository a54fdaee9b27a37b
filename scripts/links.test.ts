import { expect, it } from 'vitest'
import { anchorsOf, linksOf } from './links.ts'

it('links are found in prose and in reference lists, not in code', () => {
  const page = 'See [a](a.md#x) and [b](https://b).\n\n```md\n[c](c.md)\n```\n`[d](d.md)`\n\n[e]: e.md\n'
  expect(linksOf(page)).toEqual(['a.md#x', 'e.md'])
})

it('anchors are those that GitHub generates for headings', () => {
  const page =
    '# Rules, limits & `on_fail`\n## Why? (0.5 s)\n## Same\n```sh\n# comment\n```\n## Same\n### [Link](x.md)\n'
  expect(anchorsOf(page)).toEqual(['rules-limits--on_fail', 'why-05-s', 'same', 'same-1', 'link'])
})
