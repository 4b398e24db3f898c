/** What the decoders of resources share: refusals that name the place, and the conversions of small fields. */
import { canonicalIpOf } from '../../net/address.ts';
import { MeshError, errorText } from '../../errors/mesh-error.ts';

const HIGHEST_PORT = 65_535;

/** The XDS_RESOURCE error for a field; `path` as in `workload.addresses[0]`. */
export function refusal(path: string, reason: string, cause?: unknown): MeshError {
  return new MeshError('XDS_RESOURCE', `${path}: ${reason}`, {
    detail: { field: path },
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Runs a protobuf decoder; what it throws becomes an XDS_RESOURCE that names the message. */
export function decodeMessage<T>(name: string, decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    throw new MeshError('XDS_RESOURCE', `not a valid ${name}: ${errorText(error)}`, {
      cause: error,
    });
  }
}

/** The word for an enum number. Throws XDS_RESOURCE for a number that has none. */
export function enumWord<Word extends string>(
  path: string,
  words: readonly (Word | null)[],
  value: number,
): Word {
  const word = words[value];
  if (word === undefined || word === null) throw refusal(path, `unknown value ${value}`);
  return word;
}

/** A port, 0 to 65535. Throws XDS_RESOURCE. */
export function portNumber(path: string, value: number): number {
  if (value > HIGHEST_PORT) throw refusal(path, `${value} is above ${HIGHEST_PORT}`);
  return value;
}

/** The canonical text of an address. Throws XDS_RESOURCE unless it has 4 or 16 bytes. */
export function ipText(path: string, bytes: Uint8Array): string {
  if (bytes.length !== 4 && bytes.length !== 16) {
    throw refusal(path, `an IP address has 4 or 16 bytes, not ${bytes.length}`);
  }
  return canonicalIpOf(bytes);
}
