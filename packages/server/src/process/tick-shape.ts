// V8 forgets the shape of objects of which a full collection finds none. Node makes one for each `process.nextTick`,
// and learns their shape only once: after a collection on an idle start, each costs half a microsecond more, ten of
// them in a request. While one is kept, the shape is too.

import { createHook } from 'node:async_hooks'

let kept: object | undefined

/** Call it early. Returns what is kept; undefined from a Node that has no such objects any more. */
export function keepTickShape(): object | undefined {
  const hook = createHook({
    init(_id, type, _trigger, tick) {
      if (type === 'TickObject') kept = tick
    },
  })
  hook.enable()
  process.nextTick(() => {})
  hook.disable()
  return kept
}
