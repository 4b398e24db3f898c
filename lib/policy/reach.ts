/**
 * Reads the scope of a policy whose contents cannot be decoded. It reads only the top level of the message
 * (docs/spec/policy.md §1), so that one bad condition does not hide which workloads the policy was to protect.
 */
import { Reader } from 'protobufjs/minimal.js';

/** A namespace; `''` is every namespace. Null reaches only the namespace in the policy's resource name. */
export type Reach = string | null;

/** The reach of a policy that binds the whole mesh. */
export const REACHES_ALL = '';

/** Fields of istio.security.Authorization. */
const NAMESPACE_FIELD = 2;
const SCOPE_FIELD = 3;
/** Values of `scope`; an absent one means the first. */
const GLOBAL = 0;
const NAMESPACE = 1;

const WIRE_VARINT = 0;
const WIRE_BYTES = 2;

/**
 * The workloads that a policy binds by its scope; null bytes are a policy without contents. The result is null for a scope that
 * cannot be read, is not known here or binds by selector: bytes that are no policy at all must not stop a whole mesh.
 */
export function reachOf(bytes: Uint8Array | null): Reach {
  if (bytes === null) return null;
  const { scope, namespace } = readTop(bytes);
  if (scope === GLOBAL) return REACHES_ALL;
  return scope === NAMESPACE && namespace !== '' ? namespace : null;
}

/** Reads the two fields as far as the bytes can be read; the scope is null where its absence may be the damage. */
function readTop(bytes: Uint8Array): { readonly scope: number | null; readonly namespace: string } {
  const reader = Reader.create(bytes);
  let scope: number | null = null;
  let namespace = '';
  try {
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      const field = tag >>> 3;
      const wireType = tag & 7;
      if (field === SCOPE_FIELD && wireType === WIRE_VARINT) scope = reader.uint32();
      else if (field === NAMESPACE_FIELD && wireType === WIRE_BYTES) namespace = reader.string();
      else reader.skipType(wireType);
    }
  } catch {
    // The fields before the damage count.
    return { scope, namespace };
  }
  return { scope: scope ?? GLOBAL, namespace };
}
