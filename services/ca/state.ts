/** The state of an own root: its key, its successor, and the step of a rotation. */
import * as z from 'zod';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { rootName } from '../../lib/identity/root-report.ts';
import { createRoot } from '../../lib/identity/x509.ts';
import { parseCertificates } from '../../lib/tls/pem.ts';
import { readAuthority } from './authority.ts';
import type { Authority } from './authority.ts';
import { BACKDATE_MS, ROOT_LIFETIME_MS } from './limits.ts';

const keyPair = z.strictObject({ certificatePem: z.string(), keyPem: z.string() });

/** A certificate with its key, PEM. */
export type KeyPair = z.infer<typeof keyPair>;

const rotation = z.strictObject({
  /**
   * `prepare`: the new key exists. `distribute`: the new root is in the bundle. `sign`: the new key signs. The last step,
   * retire, takes the old root away and ends the rotation.
   */
  step: z.enum(['prepare', 'distribute', 'sign']),
  /** When the step began, milliseconds since the epoch. */
  sinceMs: z.number(),
  /**
   * The end of the last certificate that keeps the step from its end; null until the step has reached every CA process.
   * Milliseconds since the epoch.
   */
  waitUntilMs: z.number().nullable(),
  /** The successor before it signs; the predecessor afterwards, without its key. */
  other: z.strictObject({ certificatePem: z.string(), keyPem: z.string().nullable() }),
  reason: z.enum(['asked', 'expiring']),
  /** Holders that an operator took out of those that the steps wait for, sorted; missing when there are none. */
  skipped: z.array(z.string()).optional(),
});

/** The rotation of a root in progress. */
export type Rotation = z.infer<typeof rotation>;

/** The schema of {@link CaState}. */
export const caState = z.strictObject({
  signing: keyPair,
  chainPem: z.string(),
  rootsPem: z.string(),
  rotation: rotation.nullable(),
});

/** All that a CA with its own root must never lose. */
export type CaState = z.infer<typeof caState>;

/** A state and the version that a replacement must name. */
export interface StoredState {
  readonly state: CaState;
  readonly version: string;
}

/** Keeps the state where it outlives the process: in a folder, or in a Secret. */
export interface StateStore {
  /** The place, for messages. */
  readonly where: string;
  /** Null when there is none. Throws STATE_INVALID for an unusable one, STATE_UNAVAILABLE when nobody can tell. */
  read(): Promise<StoredState | null>;
  /** The version to replace, also of an unusable state; null when there is none. */
  version(): Promise<string | null>;
  /** Throws STATE_CONFLICT when there is one already. */
  create(state: CaState): Promise<void>;
  /** Throws STATE_CONFLICT when the stored version is not `version`. */
  replace(state: CaState, version: string): Promise<void>;
  /** Calls `changed` when the state may have changed; the result ends that. */
  follow(changed: () => void): () => void;
}

/** Makes a state with a new root. */
export async function newState(trustDomain: string, nowMs: number): Promise<CaState> {
  const pair = await newRoot(trustDomain, nowMs);
  return { signing: pair, chainPem: '', rootsPem: pair.certificatePem, rotation: null };
}

/** Makes a root that is valid from now on. */
export async function newRoot(trustDomain: string, nowMs: number): Promise<KeyPair> {
  const root = await createRoot(trustDomain, nowMs - BACKDATE_MS, nowMs + ROOT_LIFETIME_MS);
  const keyPem = root.key.export({ format: 'pem', type: 'pkcs8' });
  return { certificatePem: root.certificatePem, keyPem };
}

/** Parses the JSON of a state. Throws STATE_INVALID that names `where` and the first wrong field. */
export function parseState(text: string, where: string): CaState {
  try {
    return caState.parse(JSON.parse(text));
  } catch (error) {
    throw unusable(where, error);
  }
}

/** Parses the JSON of a rotation; throws what zod throws. */
export function parseRotation(text: string): Rotation {
  return rotation.parse(JSON.parse(text));
}

/** The authority of a state. Throws STATE_INVALID that names `where`. */
export function authorityOf(state: CaState, where: string, nowMs: number): Authority {
  try {
    const { signing, chainPem, rootsPem } = state;
    return readAuthority({ ...signing, chainPem, rootsPem, crlPem: null }, nowMs);
  } catch (error) {
    throw unusable(where, error);
  }
}

/** An error for a state that cannot be used. */
export function unusable(where: string, error: unknown): MeshError {
  return new MeshError(
    'STATE_INVALID',
    `the root in ${where} cannot be used: ${errorText(error)}`,
    {
      cause: error,
      detail: { where },
    },
  );
}

/** The short name of a root (lib/identity/root-report.ts). */
export function nameOf(certificatePem: string): string {
  const [certificate] = parseCertificates(certificatePem, 'the root');
  return rootName(present(certificate, 'parsing refuses no certificates'));
}
