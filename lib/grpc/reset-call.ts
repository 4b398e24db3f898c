import { constants } from 'node:http2';
import type { Http2Stream } from 'node:http2';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import { present } from '../errors/assert.ts';

/**
 * Ends the stream of a call at once, and drops what was written to it. gRPC writes the end of a call behind everything that the
 * client has not read yet, so a client that reads nothing is never ended; gRPC has no other way, so this reaches for its stream.
 */
export function resetCall<I, O>(call: ServerDuplexStream<I, O>): void {
  const { call: inner } = call as { readonly call?: { readonly stream?: Http2Stream } };
  const stream = present(inner?.stream, 'gRPC keeps the HTTP/2 stream of a call');
  stream.close(constants.NGHTTP2_CANCEL);
  // The connection itself may be stuck; it is not waited for either.
  stream.destroy();
}
