// Decoder of the Huffman code of HPACK (RFC 7541, appendix B). The code is canonical, so the lengths define it: codes
// are assigned by increasing length and, within a length, by increasing symbol.

/** Bits of the code of each symbol 0 to 255 and EOS (256), one letter each: `a` is 5 bits, `z` is 30. */
const LENGTHS = [
  'isxxxxxxxtzxxzxxxxxxxxzxxxxxxxxx',
  'bffhibdgffdgdbbbaaabbbbbbbcdkbhf',
  'ibccccccccccccccccccccccdcdioijb',
  'kabababbbaccbbbabcbaabccccckgjix',
  'prpprrrsrssssststtrstssssqrsrsst',
  'rqprrssqsrrtqrssqqrqsrssprrrsrrs',
  'vvporsruvvvwwvtuoqvwwvwtqqvvxwww',
  'ptpqrqqsrruuttvsvwvvwwwwwxwwwwwv',
  'z',
].join('')
const EOS = 256

/** Binary tree: node n has its children at 2n and 2n + 1; a child is a node, or a symbol as -1 - symbol. */
const TREE = buildTree()

/**
 * Returns the decoded text (latin1), or undefined for an invalid code: EOS inside, padding longer than 7 bits or with
 * a zero. `scratch` holds the decoded bytes; undefined if they do not fit.
 */
export function decodeHuffman(bytes: Uint8Array, start: number, end: number, scratch: Buffer): string | undefined {
  let node = 0
  let length = 0
  let padding = 0 // bits since the last symbol
  let ones = true // all of them 1
  for (let at = start; at < end; at += 1) {
    const byte = bytes[at] as number
    for (let bit = 7; bit >= 0; bit -= 1) {
      const isOne = (byte >> bit) & 1
      const next = TREE[node * 2 + isOne] as number
      if (next >= 0) {
        node = next
        padding += 1
        ones &&= isOne === 1
        continue
      }
      const symbol = -1 - next
      if (symbol === EOS || length === scratch.length) return undefined
      scratch[length] = symbol
      length += 1
      node = 0
      padding = 0
      ones = true
    }
  }
  return padding > 7 || !ones ? undefined : scratch.toString('latin1', 0, length)
}

function buildTree(): Int16Array {
  const tree = new Int16Array(2 * EOS + 2) // a full binary tree with 257 leaves has 256 inner nodes
  let nodes = 1
  let code = 0
  let bits = 5
  for (const symbol of symbolsByLength()) {
    const length = lengthOf(symbol)
    code <<= length - bits
    bits = length
    let node = 0
    for (let bit = length - 1; bit > 0; bit -= 1) {
      const child = node * 2 + ((code >> bit) & 1)
      if (tree[child] === 0) {
        tree[child] = nodes
        nodes += 1
      }
      node = tree[child] as number
    }
    tree[node * 2 + (code & 1)] = -1 - symbol
    code += 1
  }
  return tree
}

function symbolsByLength(): number[] {
  const symbols = Array.from(LENGTHS, (_, symbol) => symbol)
  return symbols.sort((a, b) => lengthOf(a) - lengthOf(b) || a - b)
}

function lengthOf(symbol: number): number {
  return LENGTHS.charCodeAt(symbol) - 92 // 'a' is 97
}
