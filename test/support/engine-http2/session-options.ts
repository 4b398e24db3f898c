import type { SecureClientSessionOptions, ServerSessionOptions, Settings } from 'node:http2';
import type { TunnelSettings } from '../../../lib/hbone/engine.ts';
import {
  CLIENT_HEADER_LIST_BYTES,
  MAX_CONCURRENT_STREAMS,
  SERVER_HEADER_LIST_BYTES,
} from '../../../lib/hbone/limits.ts';

/**
 * Memory that a session may hold, in units of 10^6 bytes. Above it node:http2 refuses streams, so it must exceed the bound of flow
 * control: a full stream window for each stream.
 */
const SESSION_MEMORY_MB = 1_000;

/**
 * Resets that a peer may send in one burst, and per second. ztunnel reports every closed connection by a reset; node:http2's default
 * of a thousand would close the whole tunnel.
 */
const STREAM_RESET_BURST = 10_000_000;
const STREAM_RESET_RATE = 1_000_000;

/** Streams that a session may reject before node:http2 closes it. */
const MAX_REJECTED_STREAMS = 1_000_000;

/** Malformed frames that a session may receive before node:http2 closes it. */
const MAX_INVALID_FRAMES = 100;

/** PINGs that may be unanswered at once: the periodic one, and probes. */
const MAX_OUTSTANDING_PINGS = 4;

/** node:http2 options of a server session (docs/spec/hbone.md §8). */
export function serverSessionOptions(settings: TunnelSettings): ServerSessionOptions {
  return {
    ...common(settings, {
      maxConcurrentStreams: MAX_CONCURRENT_STREAMS,
      maxHeaderListSize: SERVER_HEADER_LIST_BYTES,
    }),
    maxSessionRejectedStreams: MAX_REJECTED_STREAMS,
    maxSessionInvalidFrames: MAX_INVALID_FRAMES,
    streamResetBurst: STREAM_RESET_BURST,
    streamResetRate: STREAM_RESET_RATE,
  };
}

/** node:http2 options of a client session. */
export function clientSessionOptions(settings: TunnelSettings): SecureClientSessionOptions {
  return {
    ...common(settings, { enablePush: false, maxHeaderListSize: CLIENT_HEADER_LIST_BYTES }),
    // The limit a peer is taken to have until its SETTINGS arrive.
    peerMaxConcurrentStreams: settings.maxStreams,
  };
}

function common(
  settings: TunnelSettings,
  own: Settings,
): { settings: Settings; maxSessionMemory: number; maxOutstandingPings: number } {
  return {
    settings: {
      ...own,
      initialWindowSize: settings.streamWindow,
      maxFrameSize: settings.frameSize,
    },
    maxSessionMemory: SESSION_MEMORY_MB,
    maxOutstandingPings: MAX_OUTSTANDING_PINGS,
  };
}
