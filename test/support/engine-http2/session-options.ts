import type { SecureClientSessionOptions, ServerSessionOptions, Settings } from 'node:http2';
import type { TunnelSettings } from '../../../lib/hbone/engine.ts';
import {
  CLIENT_HEADER_LIST_BYTES,
  MAX_CONCURRENT_STREAMS,
  MAX_INVALID_FRAMES,
  MAX_OUTSTANDING_PINGS,
  MAX_REJECTED_STREAMS,
  SERVER_HEADER_LIST_BYTES,
  SESSION_MEMORY_MB,
  STREAM_RESET_BURST,
  STREAM_RESET_RATE,
} from '../../../lib/hbone/limits.ts';

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
