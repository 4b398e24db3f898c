/** The operations of `weft ca` on the CA's state. They work on the stores, so that they need no running CA. */
import * as z from 'zod';
import { MeshError, asMeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { rootName } from '../../lib/identity/root-report.ts';
import { parseCertificates } from '../../lib/tls/pem.ts';
import type { Authority } from './authority.ts';
import { caConfig } from './config.ts';
import type { CaConfig } from './config.ts';
import type { Holder } from './holders.ts';
import { kubernetesStores, openClient } from './kubernetes/stores.ts';
import { parsePlugged, readPlugged } from './plugged-authority.ts';
import type { PluggedDeps } from './plugged-authority.ts';
import { abandonRotation, beginRotation, newRootOf, skipHolders, waitOf } from './rotation.ts';
import { authorityOf, caState, newRoot, newState } from './state.ts';
import type { CaState, StateStore, StoredState } from './state.ts';
import { folderStores } from './stores.ts';
import type { CaStores } from './stores.ts';

/** The rules of an own root. */
export interface OwnRules {
  readonly trustDomain: string;
  readonly settleMs: number;
}

/** One root of the bundle. */
export interface RootLine {
  /** The short name, which nodes report. */
  readonly name: string;
  readonly subject: string;
  /** RFC 3339. */
  readonly notAfter: string;
  /** True when the key of this root, or an authority below it, signs. */
  readonly signs: boolean;
  /** Holders of certificates that did not report this root, sorted; those that report nothing are left out. */
  readonly missing: readonly string[];
}

/** The state of the CA for an operator. Times in RFC 3339. */
export interface CaStatus {
  /** Where the key lies. */
  readonly source: string;
  readonly notAfter: string;
  readonly roots: readonly RootLine[];
  readonly holders: { readonly count: number; readonly silent: readonly string[] };
  readonly rotation: {
    readonly step: string;
    readonly reason: string;
    readonly since: string;
    readonly newRoot: string;
    /** The reason why the step goes on; null when it ends with the next check. */
    readonly waitsFor: string | null;
    readonly until: string | null;
    readonly missing: readonly string[];
    /** Holders that an operator took out of those that the steps wait for, sorted. */
    readonly skipped: readonly string[];
  } | null;
}

const backupSchema = z.strictObject({
  kind: z.literal('weft-ca-backup'),
  version: z.literal(1),
  takenAt: z.string(),
  state: caState,
});

/** An opened state. The owner closes it. */
export interface OpenedState {
  readonly config: CaConfig;
  readonly stores: CaStores;
  close(): void;
  [Symbol.dispose](): void;
}

/** Reads the configuration and opens the stores. Throws CONFIG_INVALID for variables that the CA refuses. */
export async function openState(
  environment: Readonly<Record<string, string | undefined>>,
  deps: PluggedDeps,
): Promise<OpenedState> {
  const config = caConfig.parse(environment);
  if (config.source === 'manifests') {
    return opened(config, folderStores(config, deps), () => undefined);
  }
  const client = await openClient(config, deps);
  const stores = await kubernetesStores(config, { ...deps, client });
  return opened(config, stores, () => client.close());
}

function opened(config: CaConfig, stores: CaStores, close: () => void): OpenedState {
  return { config, stores, close, [Symbol.dispose]: close };
}

/** The status of the CA. Throws like the start of a CA, but makes no root. */
export async function caStatus(
  rules: OwnRules,
  stores: CaStores,
  nowMs: number,
): Promise<CaStatus> {
  const { plugged } = stores;
  if (plugged === null) return ownStatus(stores, rules, nowMs);
  const authority = parsePlugged(plugged.where, await readPlugged(plugged), nowMs);
  const holders = await stores.holders.read();
  return { ...commonStatus(plugged.where, authority, holders, nowMs), rotation: null };
}

async function ownStatus(
  stores: CaStores,
  { settleMs }: OwnRules,
  nowMs: number,
): Promise<CaStatus> {
  const { state } = await required(stores.state);
  const holders = await stores.holders.read();
  const authority = authorityOf(state, stores.state.where, nowMs);
  const common = commonStatus(stores.state.where, authority, holders, nowMs);
  const { rotation } = state;
  if (rotation === null) return { ...common, rotation: null };
  const wait = waitOf(state, rotation, holders, { nowMs, settleMs });
  return {
    ...common,
    rotation: {
      step: rotation.step,
      reason: rotation.reason,
      since: rfc3339(rotation.sinceMs),
      newRoot: newRootOf(state, rotation),
      waitsFor: wait.reason,
      until: wait.untilMs === null ? null : rfc3339(wait.untilMs),
      missing: wait.missing,
      skipped: rotation.skipped ?? [],
    },
  };
}

/** Begins a rotation. Throws STATE_CONFLICT during another, or when the CA was faster. */
export async function rotate(
  store: StateStore,
  { trustDomain }: OwnRules,
  nowMs: number,
): Promise<void> {
  const { state, version } = await required(store);
  const next = await newRoot(trustDomain, nowMs);
  await store.replace(beginRotation(state, next, 'asked', nowMs), version);
}

/** Gives up a rotation whose new key has signed nothing yet. Throws STATE_CONFLICT otherwise. */
export async function abandon(store: StateStore): Promise<void> {
  const { state, version } = await required(store);
  await store.replace(abandonRotation(state), version);
}

/** Takes holders that are gone out of those that the rotation waits for. Throws what {@link skipHolders} throws. */
export async function skip(
  { state: store, holders }: CaStores,
  names: readonly string[],
  nowMs: number,
): Promise<void> {
  const { state, version } = await required(store);
  await store.replace(skipHolders(state, names, await holders.read(), nowMs), version);
}

/** A copy of the state with its private keys, as text. */
export async function backup(store: StateStore, nowMs: number): Promise<string> {
  const { state } = await required(store);
  const copy: z.infer<typeof backupSchema> = {
    kind: 'weft-ca-backup',
    version: 1,
    takenAt: rfc3339(nowMs),
    state,
  };
  return `${JSON.stringify(copy, null, 2)}\n`;
}

/**
 * Brings a copy back; a rotation in it begins its step anew. Throws STATE_INVALID for an unusable copy, and STATE_CONFLICT when
 * it would cut off workloads: the published roots do not include its root, or it lacks a root of the present state.
 * `replaceRoot` does it even so.
 */
export async function restore(
  stores: CaStores,
  text: string,
  options: { readonly replaceRoot: boolean; readonly nowMs: number },
): Promise<void> {
  const state = parseBackup(text, options.nowMs);
  // Read before the checks: the state that they judge is the one that is replaced.
  const version = await stores.state.version();
  if (!options.replaceRoot) {
    await checkTrusted(stores, state);
    await checkKept(stores.state, state);
  }
  await put(stores.state, begunAnew(state, options.nowMs), version);
}

/** Makes a root where there is none. With `replaceRoot` it replaces whatever is there. */
export async function init(
  stores: CaStores,
  { trustDomain }: OwnRules,
  options: { readonly replaceRoot: boolean; readonly nowMs: number },
): Promise<void> {
  const state = await newState(trustDomain, options.nowMs);
  if (options.replaceRoot) {
    await put(stores.state, state, await stores.state.version());
    return;
  }
  const published = await stores.published();
  if (published !== null) {
    throw new MeshError(
      'STATE_CONFLICT',
      `${published.where} holds the roots of a mesh already: a new root would cut off its workloads until all nodes have read it; bring the key back (weft ca restore FILE), or say --replace-root`,
    );
  }
  await stores.holders.begin();
  await stores.state.create(state);
}

async function required(store: StateStore): Promise<StoredState> {
  const stored = await store.read();
  if (stored !== null) return stored;
  throw new MeshError(
    'STATE_INVALID',
    `there is no root key in ${store.where}; the CA makes one when it starts`,
  );
}

/** Replaces the state of this version, usable or not. */
async function put(store: StateStore, state: CaState, version: string | null): Promise<void> {
  if (version === null) await store.create(state);
  else await store.replace(state, version);
}

function parseBackup(text: string, nowMs: number): CaState {
  let state: CaState;
  try {
    ({ state } = backupSchema.parse(JSON.parse(text)));
  } catch (error) {
    throw new MeshError('STATE_INVALID', `this is no backup of a CA: ${errorText(error)}`, {
      cause: error,
    });
  }
  authorityOf(state, 'the backup', nowMs);
  return state;
}

async function checkTrusted(stores: CaStores, state: CaState): Promise<void> {
  const published = await stores.published();
  if (published === null) return;
  const trusted = new Set(fingerprints(published.pem, published.where));
  const [root] = parseCertificates(state.signing.certificatePem, 'the backup');
  if (root !== undefined && trusted.has(root.fingerprint256)) return;
  throw new MeshError(
    'STATE_CONFLICT',
    `the roots in ${published.where} do not include the root of this backup: nodes would refuse its certificates until they have read it; --replace-root brings it back even so`,
  );
}

/** Refuses a copy without a root that the present state distributes: certificates of that root may be in use. */
async function checkKept(store: StateStore, state: CaState): Promise<void> {
  const present = await usable(store);
  if (present === null) return;
  const kept = new Set(fingerprints(state.rootsPem, 'the backup'));
  if (fingerprints(present.state.rootsPem, store.where).every((root) => kept.has(root))) return;
  throw new MeshError(
    'STATE_CONFLICT',
    `${store.where} has a root that this backup lacks, and certificates of it may be in use: finish or abandon its rotation; --replace-root brings the backup back even so`,
  );
}

async function usable(store: StateStore): Promise<StoredState | null> {
  try {
    return await store.read();
  } catch (error) {
    if (asMeshError(error, 'STATE_UNAVAILABLE').code !== 'STATE_INVALID') throw error;
    return null;
  }
}

function fingerprints(pem: string, where: string): readonly string[] {
  return parseCertificates(pem, where).map((root) => root.fingerprint256);
}

/** The times of a rotation belong to the day of the backup. */
function begunAnew(state: CaState, nowMs: number): CaState {
  const { rotation } = state;
  if (rotation === null) return state;
  return { ...state, rotation: { ...rotation, sinceMs: nowMs, waitUntilMs: null } };
}

function commonStatus(
  source: string,
  authority: Authority,
  holders: readonly Holder[],
  nowMs: number,
): Omit<CaStatus, 'rotation'> {
  const live = holders.filter(({ untilMs }) => untilMs > nowMs);
  const { certificate } = authority.issuer;
  return {
    source,
    notAfter: rfc3339(authority.chainExpiresMs),
    roots: authority.roots.map((root) => {
      const name = rootName(root);
      return {
        name,
        subject: root.subject?.replaceAll('\n', ', ') ?? '',
        notAfter: rfc3339(root.validToDate.getTime()),
        signs: root.fingerprint256 === certificate.fingerprint256 || certificate.checkIssued(root),
        missing: live
          .filter(({ roots }) => roots !== null && !roots.includes(name))
          .map((holder) => holder.name)
          .sort(),
      };
    }),
    holders: {
      count: live.length,
      silent: live
        .filter(({ roots }) => roots === null)
        .map((holder) => holder.name)
        .sort(),
    },
  };
}

function rfc3339(ms: number): string {
  return new Date(ms).toISOString();
}
