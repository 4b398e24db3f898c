/** The CA's wire protocol (docs/spec/control.md §5), as domain types. */
import type { MethodDefinition } from '@grpc/grpc-js';
import { google, istio } from '#proto/ca.js';
import { MeshError } from '../errors/mesh-error.ts';

/** A request for a certificate. */
export interface SignRequest {
  /** PEM. */
  readonly csr: string;
  /** 0 = the CA decides. */
  readonly validitySeconds: number;
  /** The identity that a node asks for; null = the caller's own identity. */
  readonly impersonated: string | null;
}

/** The CA's answer: leaf, intermediates, roots last; PEM. */
export interface SignResponse {
  readonly chain: readonly string[];
}

/** Name of the gRPC method. */
const CREATE_CERTIFICATE_PATH = '/istio.v1.auth.IstioCertificateService/CreateCertificate';

/** The metadata key for the identity of another workload. */
const IMPERSONATED_IDENTITY = 'ImpersonatedIdentity';

const { IstioCertificateRequest, IstioCertificateResponse } = istio.v1.auth;

function encodeSignRequest(request: SignRequest): Buffer {
  const metadata =
    request.impersonated === null
      ? null
      : google.protobuf.Struct.create({
          fields: { [IMPERSONATED_IDENTITY]: { stringValue: request.impersonated } },
        });
  const message = IstioCertificateRequest.create({
    csr: request.csr,
    validityDuration: request.validitySeconds,
    ...(metadata === null ? {} : { metadata }),
  });
  return Buffer.from(IstioCertificateRequest.encode(message).finish());
}

/** Throws IDENTITY_INVALID for an identity that is not a string; protobufjs' errors for broken bytes. */
function decodeSignRequest(bytes: Buffer): SignRequest {
  const message = IstioCertificateRequest.decode(bytes);
  const value = message.metadata?.fields?.[IMPERSONATED_IDENTITY];
  if (value !== undefined && typeof value.stringValue !== 'string') {
    throw new MeshError('IDENTITY_INVALID', `${IMPERSONATED_IDENTITY} is not a string`);
  }
  return {
    csr: message.csr,
    validitySeconds: message.validityDuration,
    impersonated: value?.stringValue ?? null,
  };
}

function encodeSignResponse(response: SignResponse): Buffer {
  const message = IstioCertificateResponse.create({ certChain: [...response.chain] });
  return Buffer.from(IstioCertificateResponse.encode(message).finish());
}

/** Throws protobufjs' errors for broken bytes. */
function decodeSignResponse(bytes: Buffer): SignResponse {
  return { chain: IstioCertificateResponse.decode(bytes).certChain };
}

/** The method's definition for grpc-js, for clients and servers. */
export const createCertificateMethod: MethodDefinition<SignRequest, SignResponse> = {
  path: CREATE_CERTIFICATE_PATH,
  requestStream: false,
  responseStream: false,
  requestSerialize: encodeSignRequest,
  requestDeserialize: decodeSignRequest,
  responseSerialize: encodeSignResponse,
  responseDeserialize: decodeSignResponse,
};
