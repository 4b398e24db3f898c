/** Encodes and decodes the packets between node agent and node proxy (docs/spec/inpod.md §2). */
import { istio } from '#proto/zds.js';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { MAX_ERROR_BYTES } from './limits.ts';

const { zds } = istio.workload;

/** The facts about a pod in an Add. */
export interface ZdsWorkloadInfo {
  readonly name: string;
  readonly namespace: string;
  readonly serviceAccount: string;
}

/** A message of the agent. An `add` carries a descriptor, the others none. */
export type ZdsRequest =
  | { readonly type: 'add'; readonly uid: string; readonly info: ZdsWorkloadInfo | null }
  | { readonly type: 'keep'; readonly uid: string }
  | { readonly type: 'del'; readonly uid: string }
  /** `generations`: the agent reads the generation and the state of a Hello. */
  | { readonly type: 'snapshotSent'; readonly generations?: boolean };

/** The content of a proxy's Hello: its generation, and whether it takes new pods. */
export interface ZdsHello {
  readonly group: number;
  readonly state: 'serving' | 'draining';
}

/** Encodes a request. */
export function encodeRequest(request: ZdsRequest): Uint8Array {
  switch (request.type) {
    case 'add':
      return zds.WorkloadRequest.encode({
        add: { uid: request.uid, ...(request.info && { workloadInfo: { ...request.info } }) },
      }).finish();
    case 'keep':
      return zds.WorkloadRequest.encode({ keep: { uid: request.uid } }).finish();
    case 'del':
      return zds.WorkloadRequest.encode({ del: { uid: request.uid } }).finish();
    case 'snapshotSent':
      return zds.WorkloadRequest.encode({
        snapshotSent: request.generations === true ? { generations: true } : {},
      }).finish();
  }
}

/** Decodes a request. Throws ZDS_PROTOCOL for any other packet, and for one without a pod. */
export function decodeRequest(packet: Uint8Array): ZdsRequest {
  const message = decode('WorkloadRequest', () => zds.WorkloadRequest.decode(packet));
  switch (message.payload) {
    case 'add': {
      const info = message.add?.workloadInfo;
      return {
        type: 'add',
        uid: knownUid('add', message.add?.uid),
        info: info
          ? {
              name: info.name ?? '',
              namespace: info.namespace ?? '',
              serviceAccount: info.serviceAccount ?? '',
            }
          : null,
      };
    }
    case 'keep':
      return { type: 'keep', uid: knownUid('keep', message.keep?.uid) };
    case 'del':
      return { type: 'del', uid: knownUid('del', message.del?.uid) };
    case 'snapshotSent':
      return { type: 'snapshotSent', generations: message.snapshotSent?.generations === true };
    default:
      throw new MeshError('ZDS_PROTOCOL', 'WorkloadRequest without a payload');
  }
}

/** Encodes a Hello; the default one is upstream's `08 01`. */
export function encodeHello(hello: ZdsHello): Uint8Array {
  return zds.ZdsHello.encode({
    version: zds.Version.V1,
    ...(hello.group === 0 ? {} : { group: hello.group }),
    ...(hello.state === 'serving' ? {} : { state: zds.ProxyState.DRAINING }),
  }).finish();
}

/** Decodes a Hello. Throws ZDS_PROTOCOL for anything but a Hello of version 1. */
export function decodeHello(packet: Uint8Array): ZdsHello {
  const message = decode('ZdsHello', () => zds.ZdsHello.decode(packet));
  if (message.version !== zds.Version.V1) {
    throw new MeshError('ZDS_PROTOCOL', `ZdsHello of unknown version ${message.version ?? 0}`);
  }
  return {
    // The type says number, but the value is a Long object where the Long package is loaded.
    group: Number(String(message.group ?? 0)),
    state: message.state === zds.ProxyState.DRAINING ? 'draining' : 'serving',
  };
}

/** Encodes an answer; a null error means success. Cuts a long error to the size that the agent reads. */
export function encodeAck(error: string | null): Uint8Array {
  return zds.WorkloadResponse.encode({
    ack: error === null ? {} : { error: cutToBytes(error, MAX_ERROR_BYTES) },
  }).finish();
}

/** Decodes an answer to its error, null for success. Throws ZDS_PROTOCOL for any other packet. */
export function decodeAck(packet: Uint8Array): string | null {
  const message = decode('WorkloadResponse', () => zds.WorkloadResponse.decode(packet));
  if (message.ack === null || message.ack === undefined) {
    throw new MeshError('ZDS_PROTOCOL', 'WorkloadResponse without an ack');
  }
  const error = message.ack.error ?? '';
  return error === '' ? null : error;
}

function decode<T>(what: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw new MeshError('ZDS_PROTOCOL', `undecodable ${what}: ${errorText(error)}`, {
      cause: error,
    });
  }
}

function knownUid(what: string, uid: string | null | undefined): string {
  if (uid === null || uid === undefined || uid === '') {
    throw new MeshError('ZDS_PROTOCOL', `${what} without a uid`);
  }
  return uid;
}

function cutToBytes(text: string, limit: number): string {
  const bytes = Buffer.from(text, 'utf8');
  if (bytes.length <= limit) return text;
  // A cut character decodes to a replacement character; drop it.
  return `${bytes
    .subarray(0, limit - 3)
    .toString('utf8')
    .replace(/\uFFFD+$/, '')}…`;
}
