import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { Need } from '../../lib/state/lookups.ts';
import { workloadOf } from '../../lib/state/lookups.ts';
import type { Workload } from '../../lib/state/model.ts';
import type { MeshView } from '../../lib/state/view.ts';
import { MAX_DECISION_ROUNDS } from './limits.ts';
import type { PodContext } from './pod-context.ts';
import type { StateClient } from './state-client.ts';

/**
 * Runs a pure decision, fetching what it says it needs until it needs nothing more. Rejects with
 * STATE_UNAVAILABLE when the mesh cannot tell in time.
 */
export async function decided<Decision>(
  state: StateClient,
  decide: (view: MeshView) => Decision | Need,
): Promise<Decision> {
  for (let round = 0; round < MAX_DECISION_ROUNDS; round += 1) {
    const decision = decide(state);
    if (!isNeed(decision)) return decision;
    await state.fetch(decision.keys);
  }
  throw new MeshError('STATE_UNAVAILABLE', 'the mesh state changes faster than it can be read');
}

/** The workload that has the address, for telemetry: null when it is not known now. */
export async function workloadAt(pod: PodContext, ip: string): Promise<Workload | null> {
  const { state, settings } = pod.thread;
  const key = { kind: 'address', network: settings.network, ip } as const;
  const answer = state.get(key) ?? (await state.ask(key));
  return answer === undefined ? null : workloadOf(answer);
}

/** Ports of the proxy's own listeners. */
export function ownPorts(pod: PodContext): ReadonlySet<number> {
  const { outbound, inboundHbone, inboundPlaintext, socks5 } = pod.thread.settings.ports;
  const ports = [outbound, inboundHbone, inboundPlaintext];
  return new Set(socks5 === null ? ports : [...ports, socks5]);
}

function isNeed(decision: unknown): decision is Need {
  return (decision as { kind?: unknown } | null)?.kind === 'need';
}
