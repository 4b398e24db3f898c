/** The steps of a root's rotation. Pure. */
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { Holder } from './holders.ts';
import { nameOf } from './state.ts';
import type { CaState, KeyPair, Rotation } from './state.ts';

/** The conditions that a step still waits for. */
export interface Wait {
  /** Holders that do not trust the new root yet, sorted. */
  readonly missing: readonly string[];
  /** The step does not end before; milliseconds since the epoch. Null when time keeps nothing back. */
  readonly untilMs: number | null;
  /** The reason, for an operator; null when the step can end now. */
  readonly reason: string | null;
}

/** The last part of an own root's life, in which it is rotated (docs/spec/istiod-ambient.md §4.4). */
const RENEWAL_PART = 0.2;

/** Begins a rotation to `next`. Throws STATE_CONFLICT while one is in progress. */
export function beginRotation(
  state: CaState,
  next: KeyPair,
  reason: Rotation['reason'],
  nowMs: number,
): CaState {
  if (state.rotation !== null) {
    throw new MeshError(
      'STATE_CONFLICT',
      `a rotation is in progress already, at the step ${state.rotation.step}`,
    );
  }
  return { ...state, rotation: begun('prepare', next, reason, nowMs) };
}

/** Gives up a rotation whose new key has signed nothing. Throws STATE_CONFLICT when there is none, or it has. */
export function abandonRotation(state: CaState): CaState {
  const { rotation } = state;
  if (rotation === null) throw new MeshError('STATE_CONFLICT', 'no rotation is in progress');
  if (rotation.step === 'sign') {
    throw new MeshError(
      'STATE_CONFLICT',
      'the new root signs already; finish this rotation, then rotate again',
    );
  }
  return { ...state, rootsPem: state.signing.certificatePem, rotation: null };
}

/**
 * Takes holders out of those that a rotation waits for: nodes that are gone for good. Throws STATE_CONFLICT without a rotation,
 * and STATE_INVALID for a name without an unexpired certificate.
 */
export function skipHolders(
  state: CaState,
  names: readonly string[],
  holders: readonly Holder[],
  nowMs: number,
): CaState {
  const { rotation } = state;
  if (rotation === null) throw new MeshError('STATE_CONFLICT', 'no rotation is in progress');
  const known = new Set(waitedFor(rotation, holders, nowMs).map(({ name }) => name));
  const skipped = new Set(rotation.skipped);
  const unknown = names.filter((name) => !known.has(name) && !skipped.has(name));
  if (unknown.length > 0) {
    throw new MeshError(
      'STATE_INVALID',
      `${unknown.join(', ')}: the rotation does not wait for a holder of this name (weft ca status -o json names them)`,
    );
  }
  const next = { ...rotation, skipped: [...new Set([...skipped, ...names])].sort() };
  if (rotation.waitUntilMs === null) return { ...state, rotation: next };
  // Both times are bounds for those that are left.
  const rest = lastEnd(waitedFor(next, holders, nowMs), rotation.step);
  return { ...state, rotation: { ...next, waitUntilMs: Math.min(rotation.waitUntilMs, rest) } };
}

/** True in the last fifth of a root's life. Times in milliseconds since the epoch. */
export function isExpiring(notBeforeMs: number, notAfterMs: number, nowMs: number): boolean {
  return nowMs >= notAfterMs - (notAfterMs - notBeforeMs) * RENEWAL_PART;
}

/** The name of the root that becomes, or has become, the only one. */
export function newRootOf(state: CaState, rotation: Rotation): string {
  return nameOf(
    rotation.step === 'sign' ? state.signing.certificatePem : rotation.other.certificatePem,
  );
}

/**
 * Finds what the current step waits for. Every step takes `settleMs`, so that it has reached all CA processes and the files
 * of all nodes. Distribute then waits for every holder: a Weft proxy reports the roots it trusts, any other one has the new
 * root once the certificates it got before have ended. Sign waits for the end of all certificates of the old key.
 */
export function waitOf(
  state: CaState,
  rotation: Rotation,
  holders: Iterable<Holder>,
  times: { readonly nowMs: number; readonly settleMs: number },
): Wait {
  const { nowMs, settleMs } = times;
  const settledMs = rotation.sinceMs + settleMs;
  const live = waitedFor(rotation, holders, nowMs);
  const missing = rotation.step === 'distribute' ? withoutRoot(live, state, rotation, nowMs) : [];
  if (nowMs < settledMs) {
    return { missing, untilMs: settledMs, reason: `the step ${rotation.step} spreads` };
  }
  if (rotation.step === 'prepare') return { missing: [], untilMs: null, reason: null };
  const untilMs = rotation.waitUntilMs ?? lastEnd(live, rotation.step);
  if (rotation.step === 'sign' && nowMs < untilMs) {
    return { missing, untilMs, reason: 'certificates of the old root are in use' };
  }
  if (missing.length > 0) {
    return {
      missing,
      untilMs: untilMs > nowMs ? untilMs : null,
      reason: `${missing.length} do not trust the new root yet`,
    };
  }
  return { missing, untilMs: null, reason: null };
}

/**
 * Returns the state after the next step, or with the time that the current one waits for; the same state when the step goes
 * on waiting.
 */
export function nextState(
  state: CaState,
  holders: readonly Holder[],
  times: { readonly nowMs: number; readonly settleMs: number },
): CaState {
  const { rotation } = state;
  if (rotation === null || times.nowMs < rotation.sinceMs + times.settleMs) return state;
  if (rotation.step !== 'prepare' && rotation.waitUntilMs === null) {
    const live = waitedFor(rotation, holders, times.nowMs);
    return { ...state, rotation: { ...rotation, waitUntilMs: lastEnd(live, rotation.step) } };
  }
  if (waitOf(state, rotation, holders, times).reason !== null) return state;
  return stepped(state, rotation, times.nowMs);
}

function stepped(state: CaState, rotation: Rotation, nowMs: number): CaState {
  const { other, reason } = rotation;
  switch (rotation.step) {
    case 'prepare':
      return {
        ...state,
        rootsPem: state.signing.certificatePem + other.certificatePem,
        rotation: { ...rotation, step: 'distribute', sinceMs: nowMs, waitUntilMs: null },
      };
    case 'distribute': {
      const { certificatePem, keyPem } = other;
      if (keyPem === null) {
        throw new MeshError('STATE_INVALID', 'the key of the new root is not in the state');
      }
      const old = { certificatePem: state.signing.certificatePem, keyPem: null };
      return {
        signing: { certificatePem, keyPem },
        chainPem: '',
        rootsPem: state.rootsPem,
        rotation: {
          ...begun('sign', old, reason, nowMs),
          ...(rotation.skipped === undefined ? {} : { skipped: rotation.skipped }),
        },
      };
    }
    case 'sign':
      return { ...state, rootsPem: state.signing.certificatePem, rotation: null };
  }
}

function begun(
  step: Rotation['step'],
  other: Rotation['other'],
  reason: Rotation['reason'],
  nowMs: number,
): Rotation {
  return { step, sinceMs: nowMs, waitUntilMs: null, other, reason };
}

/** The holders of unexpired certificates, without those that an operator took out. */
function waitedFor(rotation: Rotation, holders: Iterable<Holder>, nowMs: number): Holder[] {
  const { skipped = [] } = rotation;
  return [...holders].filter(({ name, untilMs }) => untilMs > nowMs && !skipped.includes(name));
}

function withoutRoot(
  live: readonly Holder[],
  state: CaState,
  rotation: Rotation,
  nowMs: number,
): string[] {
  const wanted = newRootOf(state, rotation);
  const waited = rotation.waitUntilMs !== null && nowMs >= rotation.waitUntilMs;
  return live
    .filter(({ roots }) => (roots === null ? !waited : !roots.includes(wanted)))
    .map(({ name }) => name)
    .sort();
}

/** The last end of the certificates that hold up a step: of proxies that report nothing, or of all. */
function lastEnd(live: readonly Holder[], step: Rotation['step']): number {
  const counted = step === 'distribute' ? live.filter(({ roots }) => roots === null) : live;
  return counted.reduce((latest, { untilMs }) => Math.max(latest, untilMs), 0);
}
