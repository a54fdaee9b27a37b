// Process of one contender: runs a round per message, replies with its sample, exits when the parent disconnects.

import type { Contenders } from './isolated.ts'

const [, , module = '', name = '', argument = ''] = process.argv
const { contenders } = (await import(new URL(module, import.meta.url).href)) as { contenders: Contenders }
const make = contenders[name]
if (make === undefined) throw new Error(`${module} has no contender "${name}"`)
const contender = await make(argument)

process.on('message', async () => process.send?.(await contender.round()))
process.on('disconnect', async () => {
  await contender.close?.()
  process.exit(0) // timers of other libraries would keep it alive
})
process.send?.({})
