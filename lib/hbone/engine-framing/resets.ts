/** What a RST_STREAM of the peer means for its stream (docs/decisions/abnormal-ends.md). */
import { MeshError } from '../../errors/mesh-error.ts';
import { cutByPeer } from '../engine.ts';
import { errorCode } from './frames.ts';

/** How a stream is over: by both ends, or broken off; the error where that is a failure. */
export interface StreamOver {
  readonly error: Error | null;
  readonly broken: boolean;
}

/** Both sides have said all they had. */
export const ENDED: StreamOver = { error: null, broken: false };

/** Resets that, after an END_STREAM, only say that the peer wants no more (docs/spec/dataplane.md §10). */
const CLEAN: ReadonlySet<number> = new Set([
  errorCode.noError,
  errorCode.cancel,
  errorCode.streamClosed,
]);

/** How peers say that they cut a connection: Weft by INTERNAL_ERROR, ztunnel as it drops a stream (docs/spec/hbone.md §8). */
const CUTS: ReadonlySet<number> = new Set([
  errorCode.internalError,
  errorCode.noError,
  errorCode.cancel,
]);

/** The end of a stream that the peer has reset, perhaps after its END_STREAM. */
export function endByReset(code: number, remoteEnded: boolean): StreamOver {
  if (remoteEnded && CLEAN.has(code)) return ENDED;
  return { error: failure(code), broken: true };
}

/** Null for a reset of the application, which is passed on and is no failure (RFC 9113 §8.5). */
function failure(code: number): MeshError | null {
  if (code === errorCode.connectError) return null;
  if (CUTS.has(code)) return cutByPeer(`RST_STREAM code ${code}`);
  return new MeshError('TUNNEL_RESET', `the peer reset the connection (code ${code})`, {
    detail: { code },
  });
}
