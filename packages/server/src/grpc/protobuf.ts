// Protocol Buffers wire format: the reader and the writer of the library, which remote nodes use as well.

export { ProtobufError, ProtobufReader, ProtobufWriter } from 'sluice/remote-wire'
