/**
 * How far a policy reaches whose contents cannot be decoded: its scope is read by itself, from the top level of the message alone
 * (docs/spec/policy.md §1), so that one bad condition does not hide whom the policy was to protect.
 */
import { Reader } from 'protobufjs/minimal.js';

/** A namespace; `''` is every namespace, null nobody but those that its resource name speaks of. */
export type Reach = string | null;

/** Of a policy that binds the whole mesh. */
export const REACHES_ALL = '';

/** Fields of istio.security.Authorization. */
const NAMESPACE_FIELD = 2;
const SCOPE_FIELD = 3;
/** Values of `scope`; the first is what an absent one means. */
const GLOBAL = 0;
const NAMESPACE = 1;

const WIRE_VARINT = 0;
const WIRE_BYTES = 2;

/**
 * Whom a policy binds by its scope; null bytes are a policy without contents. A scope that cannot be read, is not known here or binds by selector reaches nobody by itself:
 * bytes that are no policy at all must not stop a whole mesh.
 */
export function reachOf(bytes: Uint8Array | null): Reach {
  if (bytes === null) return null;
  const { scope, namespace } = readTop(bytes);
  if (scope === GLOBAL) return REACHES_ALL;
  return scope === NAMESPACE && namespace !== '' ? namespace : null;
}

/** The two fields as far as the bytes can be read; the scope is null where its absence may be the damage. */
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
    // What was read before the damage counts.
    return { scope, namespace };
  }
  return { scope: scope ?? GLOBAL, namespace };
}
