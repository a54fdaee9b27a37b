// Virtual clock of a simulation, driven by animation frames. It stands still while the tab is hidden. People who prefer
// less motion get two frames a second.

import { useEffect, useRef, useState } from 'preact/hooks'
import { monotonicMs } from '../clock.ts'

/** Frames closer together are skipped. */
const FRAME_MS = 30
const CALM_FRAME_MS = 500
/** Longest step: after a pause of the browser, the simulation goes on where it was. */
const STEP_MS_MAX = 1000

/** Calls `step` with the virtual microseconds that have passed, then renders the component. */
export function useClock(isRunning: boolean, step: (us: number) => void): void {
  const [, render] = useState(0)
  const latest = useRef(step)
  latest.current = step
  useEffect(() => {
    if (!isRunning) return undefined
    const frameMs = matchMedia('(prefers-reduced-motion: reduce)').matches ? CALM_FRAME_MS : FRAME_MS
    let last = monotonicMs()
    let request = requestAnimationFrame(function frame() {
      request = requestAnimationFrame(frame)
      const now = monotonicMs()
      if (now - last < frameMs) return
      latest.current(Math.round(Math.min(now - last, STEP_MS_MAX) * 1000))
      last = now
      render((count) => count + 1)
    })
    return () => cancelAnimationFrame(request)
  }, [isRunning])
}
