// `sluice/replay`: replays recorded requests with other rules, on a virtual clock. Imports nothing of Node.js, so that
// it also runs in a browser and its workers.

export { type SeenFacts, seenFacts } from './coverage.ts'
export { InOrder } from './in-order.ts'
export { readEvent } from './log/event-line.ts'
export { type LineResult, LOG_FORMATS, type LogFormat, LogReader, type MalformedLine } from './log/log-reader.ts'
export type {
  ClientKind,
  RecordedCheck,
  RecordedRefund,
  RecordedRequest,
  RecordedReset,
} from './recorded-request.ts'
export { Replay, type ReplayOptions } from './replay.ts'
export type {
  ClientResult,
  Coverage,
  Point,
  Refusal,
  ReplayResult,
  RuleResult,
  Totals,
} from './result.ts'
export { type RunOptions, replay } from './run.ts'
export { type Recording, recordingOf } from './sample.ts'
