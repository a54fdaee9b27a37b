// Writes examples/access.log: half an hour of made-up traffic in Combined Log Format, the same in every run. With
// ordinary users, a search crawler without pauses, a password guesser and a few malformed lines.
//   node scripts/access-log.mjs > examples/access.log

const START_MS = Date.UTC(2026, 0, 31, 10)
const MINUTES = 30
const AGENTS = ['Mozilla/5.0 (X11; Linux x86_64)', 'Mozilla/5.0 (iPhone; CPU iPhone OS 18_2)', 'okhttp/4.12.0']
const PAGES = ['/', '/pricing', '/docs/start', '/assets/app.js', '/api/v1/comments', '/api/v1/search/items?q=tea']

let state = 20_260_131
/** SplitMix32, from 0 up to 1. */
function random() {
  state = (state + 0x9e3779b9) | 0
  let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad)
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97)
  return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32
}
const pick = (items) => items[Math.floor(random() * items.length)]

const lines = []
function add(ms, address, user, request, status, agent) {
  const [date, time] = new Date(ms).toISOString().split('T')
  const [year, month, day] = date.split('-')
  const name = ['Jan', 'Feb'][Number(month) - 1]
  const at = `${day}/${name}/${year}:${time.slice(0, 8)} +0000`
  const bytes = 200 + Math.floor(random() * 9000)
  lines.push([ms, `${address} - ${user} [${at}] "${request} HTTP/1.1" ${status} ${bytes} "-" "${agent}"`])
}

for (let visitor = 1; visitor <= 60; visitor += 1) {
  const user = visitor % 3 === 0 ? '-' : `user_${visitor}`
  const agent = pick(AGENTS)
  let ms = START_MS + random() * MINUTES * 60_000
  for (let page = 3 + Math.floor(random() * 12); page > 0; page -= 1) {
    const path = pick(PAGES)
    const method = path === '/api/v1/comments' && random() < 0.5 ? 'POST' : 'GET'
    add(ms, `198.51.100.${visitor}`, user, `${method} ${path}`, method === 'POST' ? 201 : 200, agent)
    ms += 1000 + random() * 20_000
  }
}
for (let count = 0; count < 400; count += 1) {
  const ms = START_MS + 8 * 60_000 + count * 70 + random() * 30
  add(ms, '203.0.113.9', '-', `GET /api/v1/search/items?page=${count}`, 200, 'crawler/1.0')
}
for (let count = 0; count < 90; count += 1) {
  add(START_MS + 15 * 60_000 + count * 5000, '192.0.2.66', '-', 'POST /login', count === 89 ? 200 : 401, 'curl/8.5.0')
}
for (let count = 0; count < 150; count += 1) {
  add(
    START_MS + 20 * 60_000 + count * 300,
    '198.51.100.77',
    'importer',
    'POST /api/v1/comments',
    201,
    'python-requests/2.32',
  )
}
lines.sort(([a], [b]) => a - b)
const texts = lines.map(([, text]) => text)
texts.splice(120, 0, '198.51.100.4 - - [31/Jan/2026:10:0')
texts.splice(500, 0, '203.0.113.50 - - [31/Jan/2026:10:12:00 +0000] "\\x16\\x03\\x01\\x02" 400 226 "-" "-"')
process.stdout.write(`${texts.join('\n')}\n`)
