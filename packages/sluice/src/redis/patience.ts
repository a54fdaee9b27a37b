// How long a server is waited for that accepts a connection and then says nothing, or whose sentinels nobody can reach:
// clients go on trying, and their promises stay open for as long as they do.

/** What is asked once, at the start or for a metric, may take so long. */
const PATIENCE_MS = 2000

/** The same promise, rejected when it takes too long. */
export function inPatience<T>(asked: Promise<T>): Promise<T> {
  let stop: (() => void) | undefined
  const late = new Promise<never>((_resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${PATIENCE_MS} ms`)), PATIENCE_MS)
    stop = () => clearTimeout(timer)
  })
  return Promise.race([asked, late]).finally(stop)
}

/** When an attempt to connect has ended, well or not. The client goes on by itself if it has not. */
export function attempt(connected: Promise<unknown>): Promise<void> {
  return inPatience(connected).then(ignore, ignore)
}

function ignore(): void {}
