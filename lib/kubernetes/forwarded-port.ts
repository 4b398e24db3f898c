/** A connection to a port of a pod, through the API server and the pod's kubelet. */
import { Duplex } from 'node:stream';
import type { IncomingMessage } from 'node:http';
import type WebSocket from 'ws';
import type { RawData } from 'ws';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { looseJson, readAll } from './client.ts';
import type { KubernetesClient } from './client.ts';
import { statusError } from './status.ts';
import { MAX_MESSAGE_BYTES, MAX_REASON_BYTES, OPEN_TIMEOUT_MS } from './limits.ts';

/** Channels of a port; the first byte of each message names one. */
const DATA = 0;
const ERROR = 1;
const PROTOCOL = 'v4.channel.k8s.io';
const PORT_BYTES = 2;

/** A port of a pod. */
export interface PodPort {
  readonly namespace: string;
  readonly pod: string;
  readonly port: number;
}

/**
 * Connects to a port inside a pod, as `kubectl port-forward` does. Throws KUBERNETES_REFUSED that names the missing right, and
 * KUBERNETES_UNAVAILABLE. A port where nothing listens breaks the stream with the kubelet's reason.
 */
export async function forwardPort(
  client: KubernetesClient,
  target: PodPort,
): Promise<ForwardedPort> {
  const { namespace, pod, port } = target;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(pod)}/portforward`;
  const [{ default: Socket }, { url, headers, secure }] = await Promise.all([
    import('ws'),
    client.upgrade(path, { ports: String(port) }),
  ]);
  const socket = new Socket(url, PROTOCOL, {
    ...secure,
    headers,
    handshakeTimeout: OPEN_TIMEOUT_MS,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
  });
  const what = `port ${port} of pod ${namespace}/${pod}`;
  // The first messages come with the answer, so that the stream must listen before it is open.
  const stream = new ForwardedPort(socket, what);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  socket.once('open', resolve);
  socket.once('unexpected-response', (_request, response: IncomingMessage) => {
    refusal(response, namespace, what).then(reject, reject);
  });
  stream.once('error', reject);
  try {
    await promise;
  } catch (error) {
    stream.destroy();
    throw error;
  }
  stream.off('error', reject);
  return stream;
}

async function refusal(response: IncomingMessage, namespace: string, what: string): Promise<Error> {
  const body = looseJson(await readAll(response, what));
  const failure = statusError(what, response.statusCode ?? 0, body);
  if (failure.code !== 'KUBERNETES_REFUSED') return failure;
  return new MeshError(
    failure.code,
    `${failure.message}; it needs the rights "get" and "create" for pods/portforward in namespace ${namespace}`,
    { detail: failure.detail },
  );
}

/** Carries the bytes of one port. The protocol has no half-closed connections: the end of writing is not told. */
export class ForwardedPort extends Duplex {
  readonly #socket: WebSocket;
  readonly #what: string;
  readonly #announced = new Set<number>();
  #reason = Buffer.alloc(0);
  #idle: NodeJS.Timeout | null = null;
  #idleMs = 0;

  constructor(socket: WebSocket, what: string) {
    super();
    this.#socket = socket;
    this.#what = what;
    socket.on('message', (data) => this.#take(data));
    socket.on('error', (error) => this.destroy(this.#failure(errorText(error))));
    socket.on('close', () => this.#closed());
  }

  /** Emits `timeout` after so long without a byte, as a socket does; 0 never. */
  setTimeout(idleMs: number): this {
    this.#idleMs = idleMs;
    this.#touch();
    return this;
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(
    chunk: Buffer,
    _encoding: BufferEncoding,
    done: (error?: Error | null) => void,
  ): void {
    this.#touch();
    // Once the other side closes, its reason is the error, not this write.
    this.#socket.send(Buffer.concat([Buffer.of(DATA), chunk]), (error) =>
      done(this.#socket.readyState === this.#socket.OPEN ? error : null),
    );
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (this.#idle !== null) clearTimeout(this.#idle);
    this.#socket.terminate();
    done(error);
  }

  #take(data: RawData): void {
    this.#touch();
    const message = Buffer.isBuffer(data) ? data : Buffer.concat([data].flat() as Buffer[]);
    const [channel = -1] = message;
    let bytes = message.subarray(1);
    if (!this.#announced.has(channel)) {
      // The first message of a channel holds the port.
      this.#announced.add(channel);
      bytes = bytes.subarray(PORT_BYTES);
    }
    if (bytes.length === 0) return;
    if (channel === DATA) {
      if (!this.push(bytes)) this.#socket.pause();
    } else if (channel === ERROR && this.#reason.length < MAX_REASON_BYTES) {
      this.#reason = Buffer.concat([this.#reason, bytes]);
    }
  }

  #closed(): void {
    const reason = this.#reason.toString('utf8').trim();
    if (reason !== '') this.destroy(this.#failure(reason));
    else this.push(null);
  }

  #failure(why: string): MeshError {
    return new MeshError('KUBERNETES_UNAVAILABLE', `${this.#what}: ${why}`);
  }

  #touch(): void {
    if (this.#idle !== null) clearTimeout(this.#idle);
    this.#idle = this.#idleMs === 0 ? null : setTimeout(() => this.emit('timeout'), this.#idleMs);
  }
}
