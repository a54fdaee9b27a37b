// Reads a value immediately, and then at an interval.

export type Poll = { stop(): void }

/** `read` never rejects. Its value is not used after `stop`. */
export function poll<T>(read: () => T | Promise<T>, ms: number, use: (value: T) => void): Poll {
  let stopped = false
  let timer: NodeJS.Timeout
  const run = async () => {
    const value = await read()
    if (stopped) return
    use(value)
    timer = setTimeout(run, ms).unref()
  }
  void run()
  return {
    stop: () => {
      stopped = true
      clearTimeout(timer)
    },
  }
}
