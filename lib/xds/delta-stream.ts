import { Metadata, connectivityState } from '@grpc/grpc-js';
import type { ServiceError } from '@grpc/grpc-js';
import { firstEvent } from '../async/first-event.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { SecureClient } from '../grpc/client.ts';
import { HANDSHAKE_TIMEOUT_MS } from '../grpc/credentials.ts';
import { decodeResponse, encodeRequest } from './wire.ts';
import type { DeltaRequest, DeltaResponse } from './wire.ts';
import type { StreamEnd } from './reconnect.ts';
import { DELTA_METHOD } from './type-urls.ts';

/** Upstream's time limit for the TCP connection (docs/spec/control.md §1). The TLS handshake has its own. */
const CONNECT_TIMEOUT_MS = 5_000;

/** How a stream ended, with the text of the error. */
export interface StreamOutcome {
  readonly end: StreamEnd;
  readonly text: string;
}

/** Sends a request; resolves when the next one may be sent. */
export type SendRequest = (request: DeltaRequest) => Promise<void>;

/** Callbacks of a stream. Responses are handled one at a time; the server waits meanwhile. */
export interface StreamHandler {
  opened(send: SendRequest): Promise<void>;
  response(response: DeltaResponse, send: SendRequest): Promise<void>;
}

/**
 * Runs one delta stream on the client, from the connection to its end. An abort of `signal` ends it. A failure of the
 * peer resolves with its outcome; a failure of the handler ends the stream and is thrown.
 */
export async function runDeltaStream(
  client: SecureClient,
  handler: StreamHandler,
  signal: AbortSignal,
): Promise<StreamOutcome> {
  const connection = await connectClient(client);
  if (signal.aborted) return { end: { kind: 'local' }, text: 'stopped' };
  if (connection === 'timeout') {
    return { end: { kind: 'not-established' }, text: 'the server did not connect in time' };
  }
  const call = client.makeBidiStreamRequest(
    DELTA_METHOD,
    encodeRequest,
    decodeResponse,
    new Metadata(),
  );
  const abort = (): void => call.cancel();
  signal.addEventListener('abort', abort, { once: true });
  let established = false;
  call.once('metadata', () => {
    established = true;
  });
  let handlerFailure: { error: unknown } | null = null;
  const handled = async (work: Promise<void>): Promise<void> => {
    try {
      await work;
    } catch (error) {
      handlerFailure = { error };
      throw error;
    }
  };
  const send: SendRequest = async (request) => {
    if (!call.write(request)) await firstEvent(call, ['drain', 'close', 'error']);
  };
  try {
    // Without a connection the call fails at once, and its error tells the reason.
    if (connection === 'ready') await handled(handler.opened(send));
    for await (const response of call as AsyncIterable<DeltaResponse>) {
      await handled(handler.response(response, send));
    }
    return { end: { kind: 'complete' }, text: 'the server ended the stream' };
  } catch (error) {
    if (handlerFailure !== null) throw error;
    return { end: classify(error, established), text: errorText(error) };
  } finally {
    signal.removeEventListener('abort', abort);
    call.cancel();
  }
}

/** The outcome of the first attempt to connect. A server that is busy with the handshake gets the time of a handshake. */
function connectClient(client: SecureClient): Promise<'ready' | 'failed' | 'timeout'> {
  const channel = client.getChannel();
  const tcpDeadline = Date.now() + CONNECT_TIMEOUT_MS;
  let deadline = tcpDeadline;
  return new Promise((resolve) => {
    const look = (): void => {
      const state = channel.getConnectivityState(true);
      switch (state) {
        case connectivityState.READY:
          resolve('ready');
          break;
        case connectivityState.TRANSIENT_FAILURE:
        case connectivityState.SHUTDOWN:
          resolve('failed');
          break;
        case connectivityState.IDLE:
        case connectivityState.CONNECTING:
          channel.watchConnectivityState(state, deadline, (error) => {
            const isExtended = deadline > tcpDeadline;
            if (error !== undefined && (isExtended || !client.handshaking)) {
              resolve('timeout');
              return;
            }
            if (error !== undefined) deadline += HANDSHAKE_TIMEOUT_MS;
            look();
          });
      }
    };
    look();
  });
}

function classify(error: unknown, established: boolean): StreamEnd {
  if (!established) return { kind: 'not-established' };
  const { code, details } = error as Partial<ServiceError>;
  if (typeof code !== 'number') return { kind: 'local' };
  return { kind: 'status', code, details: details ?? '' };
}
