// Messages between remote nodes and the service, for the service.

export { limitFingerprint } from './limit-fingerprint.ts'
export { ProtobufError, ProtobufReader, ProtobufWriter } from './protobuf.ts'
export { decodeReplies, encodeReplies, type WireGrant, type WireReply, type WireTaken } from './replies.ts'
export {
  decodeRequests,
  encodeRequests,
  type WireCharge,
  type WireKind,
  type WireRequest,
  type WireReturn,
} from './requests.ts'
export {
  decodeReport,
  decodeState,
  type ExceptedKeys,
  encodeReport,
  encodeState,
  exceptedKeys,
  exceptedKeyTest,
  type NodeReport,
  type NodeState,
} from './state-message.ts'
