/** Interprets a RST_STREAM of the peer (docs/decisions/abnormal-ends.md). */
import { MeshError } from '../../errors/mesh-error.ts';
import { cutByPeer } from '../engine.ts';
import { errorCode } from './frames.ts';

/** The end of a stream: by both sides, or broken off, with the error if that is a failure. */
export interface StreamOver {
  readonly error: Error | null;
  readonly broken: boolean;
}

/** The end of a stream on which both sides have sent END_STREAM. */
export const ENDED: StreamOver = { error: null, broken: false };

/** Resets that, after an END_STREAM, only mean that the peer wants no more (docs/spec/dataplane.md §10). */
const CLEAN: ReadonlySet<number> = new Set([
  errorCode.noError,
  errorCode.cancel,
  errorCode.streamClosed,
]);

/** Resets by which a peer reports a cut connection: INTERNAL_ERROR of Weft, the others of ztunnel, which drops the stream (docs/spec/hbone.md §8). */
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

/** The error of a stream on which the peer broke a rule, and which was reset with `code` for it. */
export function breach(code: number): MeshError {
  const why = `the peer broke the protocol on the stream (code ${code})`;
  return new MeshError('TUNNEL_PROTOCOL', why, { detail: { code } });
}

/** The error of a reset. Null for a reset of the application, which is passed on and is no failure (RFC 9113 §8.5). */
function failure(code: number): MeshError | null {
  if (code === errorCode.connectError) return null;
  if (CUTS.has(code)) return cutByPeer(`RST_STREAM code ${code}`);
  return new MeshError('TUNNEL_RESET', `the peer reset the connection (code ${code})`, {
    detail: { code },
  });
}
