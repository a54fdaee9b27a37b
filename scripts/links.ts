// Finds dead relative links between Markdown pages, including links to headings.

import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** Relative links of a page whose file or heading does not exist, as `page: target`. */
export function deadLinks(page: string): string[] {
  return linksOf(readFileSync(page, 'utf8'))
    .filter((target) => {
      const [file = '', anchor] = target.split('#')
      const path = file === '' ? page : join(dirname(page), file)
      if (!existsSync(path)) return true
      return anchor !== undefined && !anchorsOf(readFileSync(path, 'utf8')).includes(anchor)
    })
    .map((target) => `${page}: ${target}`)
}

/** Targets of relative links outside code. */
export function linksOf(markdown: string): string[] {
  const prose = withoutCodeBlocks(markdown).replace(/`[^`\n]*`/g, '')
  const targets = [...prose.matchAll(/\]\(([^)\s]+)|^\[[^\]]+\]: (\S+)/gm)].map(
    ([, inline, listed]) => inline ?? listed ?? '',
  )
  return targets.filter((target) => !/^[a-z]+:/.test(target))
}

/** Anchors of the headings of a page, as GitHub generates them. */
export function anchorsOf(markdown: string): string[] {
  const seen = new Map<string, number>()
  return [...withoutCodeBlocks(markdown).matchAll(/^#{1,6} (.+?)(?: #+)?$/gm)].map(([, heading = '']) => {
    const plain = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
    const anchor = plain.replace(/[^\p{L}\p{N}\s_-]/gu, '').replaceAll(' ', '-')
    const count = seen.get(anchor) ?? 0
    seen.set(anchor, count + 1)
    return count === 0 ? anchor : `${anchor}-${count}`
  })
}

function withoutCodeBlocks(markdown: string): string {
  return markdown.replace(/^ *```[\s\S]*?^ *```/gm, '')
}
