import { status } from '@grpc/grpc-js';
import type { Client, ServiceError } from '@grpc/grpc-js';
import { MeshError } from '../errors/mesh-error.ts';
import type { ErrorCode } from '../errors/codes.ts';
import { createCertificateMethod } from './ca-protocol.ts';
import type { SignRequest, SignResponse } from './ca-protocol.ts';
import { openGrpcClient } from '../grpc/client.ts';
import type { GrpcClientOptions } from '../grpc/client.ts';

/** Time for an answer; after it the CA counts as unavailable and the caller tries again. */
const CALL_TIMEOUT_MS = 10_000;

/** Longest answer in bytes; it holds a handful of certificates. */
export const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

/** Asks a CA for certificates. The owner closes it. */
export class CaClient {
  readonly #options: GrpcClientOptions;
  #client: Client;

  /** Throws CONFIG_INVALID for an address that cannot be used. Connects on the first request. */
  constructor(options: GrpcClientOptions) {
    this.#options = options;
    this.#client = openGrpcClient(options);
  }

  /** Opens a new connection for the next request, which reads the trust roots again; requests under way continue. */
  reconnect(): void {
    this.#client.close();
    this.#client = openGrpcClient(this.#options);
  }

  /**
   * Returns the CA's answer unchecked. Throws IDENTITY_REFUSED when the CA refuses the caller or the identity,
   * IDENTITY_INVALID when the CA finds the request malformed, IDENTITY_TOKEN when there is no token to present,
   * IDENTITY_UNAVAILABLE when the CA cannot be reached or cannot answer now.
   */
  createCertificate(request: SignRequest, signal: AbortSignal): Promise<readonly string[]> {
    return new Promise((resolve, reject) => {
      const { path, requestSerialize, responseDeserialize } = createCertificateMethod;
      const call = this.#client.makeUnaryRequest<SignRequest, SignResponse>(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        { deadline: Date.now() + CALL_TIMEOUT_MS },
        (error, response) => {
          signal.removeEventListener('abort', cancel);
          if (error !== null) reject(explain(error, this.#options.address));
          else resolve(response?.chain ?? []);
        },
      );
      const cancel = (): void => call.cancel();
      if (signal.aborted) cancel();
      else signal.addEventListener('abort', cancel, { once: true });
    });
  }

  close(): void {
    this.#client.close();
  }
}

function explain(error: ServiceError, address: string): MeshError {
  const [code, what] = explanation(error.code, error.details);
  // grpc-js writes the time into connection errors. It is removed so that equal failures have equal texts.
  const details = error.details.replaceAll(/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)/g, '');
  return new MeshError(code, `the CA at ${address} ${what}: ${details}`, {
    cause: error,
    detail: { grpcStatus: error.code, address },
  });
}

function explanation(code: status, details: string): [ErrorCode, string] {
  // grpc-js reports a failed token source with this text, before it sends anything.
  if (details.startsWith('Getting metadata from plugin failed')) {
    return ['IDENTITY_TOKEN', 'was not asked because there is no token'];
  }
  switch (code) {
    case status.UNAUTHENTICATED:
    case status.PERMISSION_DENIED:
      return ['IDENTITY_REFUSED', 'refused'];
    case status.INVALID_ARGUMENT:
    case status.OUT_OF_RANGE:
      return ['IDENTITY_INVALID', 'found the request invalid'];
    default:
      return ['IDENTITY_UNAVAILABLE', 'did not answer'];
  }
}
