/** Asks a container runtime for the sandboxes of pods, by the Container Runtime Interface. */
import type { Client } from '@grpc/grpc-js';
import * as z from 'zod';
import { runtime } from '#proto/cri.js';
import { MeshError } from '../errors/mesh-error.ts';
import { CALL_TIMEOUT_MS, MAX_ANSWER_BYTES } from './limits.ts';

const {
  ListPodSandboxRequest,
  ListPodSandboxResponse,
  PodSandboxStatusRequest,
  PodSandboxStatusResponse,
} = runtime.v1;

/** Kubelet's label of each sandbox. */
const POD_UID = 'io.kubernetes.pod.uid';
const READY = 0;

/** The part of the verbose status that containerd and CRI-O have in common. */
const infoSchema = z.looseObject({ pid: z.number().int().positive() });

/** The encoding of a message. */
interface Codec<T> {
  encode(message: T): { finish(): Uint8Array };
  decode(bytes: Uint8Array): T;
}

/** A client of a runtime's socket, which connects with the first request. The owner closes it. */
export class Sandboxes {
  readonly #socket: string;
  #client: Promise<Client> | null = null;
  #closed = false;

  constructor(socket: string) {
    this.#socket = socket;
  }

  /**
   * Returns the number of the process that holds the pod's newest running sandbox, in the runtime's own numbers; null when the pod has
   * none. Rejects with STATE_UNAVAILABLE when the runtime does not answer, or not as expected.
   */
  async processOf(uid: string): Promise<number | null> {
    const { items } = await this.#call(
      'ListPodSandbox',
      ListPodSandboxRequest,
      ListPodSandboxResponse,
      {
        filter: { state: { state: READY }, labelSelector: { [POD_UID]: uid } },
      },
    );
    const [newest] = [...(items ?? [])].toSorted(
      (left, right) => (right.createdAt ?? 0) - (left.createdAt ?? 0),
    );
    if (newest?.id === undefined || newest.id === null) return null;
    const { info } = await this.#call(
      'PodSandboxStatus',
      PodSandboxStatusRequest,
      PodSandboxStatusResponse,
      { podSandboxId: newest.id, verbose: true },
    );
    return this.#pidOf(info?.['info'], newest.id);
  }

  close(): void {
    this.#closed = true;
    void this.#client?.then((client) => client.close());
  }

  #pidOf(text: string | undefined, sandbox: string): number {
    try {
      return infoSchema.parse(JSON.parse(text ?? '')).pid;
    } catch (error) {
      throw this.#failure(`tells no process of sandbox ${sandbox}`, error);
    }
  }

  async #call<Request, Response>(
    method: string,
    request: Codec<Request>,
    response: Codec<Response>,
    message: Request,
  ): Promise<Response> {
    if (this.#closed) throw this.#failure('is not asked any more', null);
    const client = await (this.#client ??= connect(this.#socket));
    return new Promise((resolve, reject) => {
      client.makeUnaryRequest<Request, Response>(
        `/runtime.v1.RuntimeService/${method}`,
        (value) => Buffer.from(request.encode(value).finish()),
        (bytes) => response.decode(bytes),
        message,
        { deadline: Date.now() + CALL_TIMEOUT_MS },
        (error, answer) => {
          if (error === null && answer !== undefined) resolve(answer);
          else reject(this.#failure(`did not answer ${method}: ${error?.details ?? ''}`, error));
        },
      );
    });
  }

  #failure(problem: string, cause: unknown): MeshError {
    return new MeshError(
      'STATE_UNAVAILABLE',
      `the container runtime at ${this.#socket} ${problem}`,
      {
        cause,
      },
    );
  }
}

/** Loads gRPC, which takes megabytes, only where a runtime is asked. */
async function connect(socket: string): Promise<Client> {
  const { Client, credentials } = await import('@grpc/grpc-js');
  return new Client(`unix:${socket}`, credentials.createInsecure(), {
    // Servers written in Go refuse the path of the socket as an authority.
    'grpc.default_authority': 'localhost',
    'grpc.use_local_subchannel_pool': 1,
    'grpc.service_config_disable_resolution': 1,
    'grpc.max_receive_message_length': MAX_ANSWER_BYTES,
  });
}
