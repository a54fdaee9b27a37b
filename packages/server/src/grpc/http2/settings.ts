// Validates the SETTINGS of the client. Only SETTINGS_INITIAL_WINDOW_SIZE has an effect: the server sends no large
// frames and no pushes, and its header encoder has no dynamic table.

import { CODE, ConnectionError, FRAME_BYTES_MAX, readUint32, SETTING, WINDOW_MAX } from './frames.ts'

/** Checks all values; returns the initial window of streams, or `window` if the frame does not change it. */
export function initialWindowOf(bytes: Buffer, start: number, end: number, window: number): number {
  let changed = window
  for (let at = start; at < end; at += 6) {
    const name = bytes.readUInt16BE(at)
    const value = readUint32(bytes, at + 2)
    if (name === SETTING.enablePush && value > 1) throw new ConnectionError(CODE.protocol, 'SETTINGS_ENABLE_PUSH')
    if (name === SETTING.frameBytesMax && (value < FRAME_BYTES_MAX || value >= 2 ** 24)) {
      throw new ConnectionError(CODE.protocol, 'SETTINGS_MAX_FRAME_SIZE')
    }
    if (name !== SETTING.initialWindow) continue
    if (value > WINDOW_MAX) throw new ConnectionError(CODE.flowControl, 'SETTINGS_INITIAL_WINDOW_SIZE')
    changed = value
  }
  return changed
}
