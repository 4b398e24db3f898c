import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { Need } from '../../lib/state/lookups.ts';
import { workloadOf } from '../../lib/state/lookups.ts';
import type { Workload } from '../../lib/state/model.ts';
import type { LookupKey, MeshView } from '../../lib/state/view.ts';
import { MAX_DECISION_ROUNDS } from './limits.ts';
import type { PodContext } from './thread-context.ts';
import type { StateClient } from './state-client.ts';

/**
 * Runs a pure decision: at once where everything is known, else it fetches what the decision says it needs until it needs
 * nothing more. Rejects with STATE_UNAVAILABLE when the mesh cannot tell in time.
 */
export function decided<Decision>(
  pod: PodContext,
  decide: (view: MeshView) => Decision | Need,
): Decision | Promise<Decision> {
  const decision = decide(pod.thread.state);
  return isNeed(decision) ? decidedLater(pod, decide, decision) : decision;
}

async function decidedLater<Decision>(
  { pod, thread: { state } }: PodContext,
  decide: (view: MeshView) => Decision | Need,
  first: Need,
): Promise<Decision> {
  let need = first;
  for (let round = 1; round < MAX_DECISION_ROUNDS; round += 1) {
    await state.fetch(need.keys, pod.uid);
    const decision = decide(state);
    if (!isNeed(decision)) return decision;
    need = decision;
  }
  throw new MeshError('STATE_UNAVAILABLE', 'the mesh state changes faster than it can be read');
}

/** The workload that has the address, for telemetry: null when it is not known now. */
export function workloadAt(
  pod: PodContext,
  ip: string,
): Workload | null | Promise<Workload | null> {
  const { state, settings } = pod.thread;
  const key = { kind: 'address', network: settings.network, ip } as const;
  const answer = state.get(key);
  return answer === undefined ? workloadAsked(state, key, pod.pod.uid) : workloadOf(answer);
}

async function workloadAsked(
  state: StateClient,
  key: LookupKey,
  pod: string,
): Promise<Workload | null> {
  const answer = await state.ask(key, pod);
  return answer === undefined ? null : workloadOf(answer);
}

function isNeed(decision: unknown): decision is Need {
  return (decision as { kind?: unknown } | null)?.kind === 'need';
}
