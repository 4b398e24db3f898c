import { isDeepStrictEqual } from 'node:util';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { describeVerdict, judge } from '../../lib/policy/evaluate.ts';
import type {
  ConnectionFacts as PolicyFacts,
  EffectivePolicy,
  PolicyProgram,
  Verdict,
} from '../../lib/policy/model.ts';
import type { Connection } from './telemetry/connection.ts';
import { POLICY_WAIT_MS } from './limits.ts';
import type { PodInfo } from './protocol/control.ts';
import type { LocalPod } from './protocol/state.ts';
import { isKnown, unknownWorkload } from './state-client.ts';
import type { KnownPod, StateClient } from './state-client.ts';
import type { ThreadMetrics } from './telemetry/thread-metrics.ts';

/** Dependencies of {@link PodPolicy}. */
export interface PodPolicyDeps {
  readonly pod: PodInfo;
  /** The live connections of the pod. */
  readonly connections: Iterable<Connection>;
  readonly state: StateClient;
  readonly log: Logger;
  readonly metrics: ThreadMetrics;
  readonly unknownReference: 'deny' | 'ignore';
  /** Decisions are logged at info instead of debug. */
  readonly infoLogging: boolean;
}

/**
 * Authorization of one pod's inbound connections: once before a connection is made, and again for every live one
 * whenever the policies or the workload's own list of them change, not when something else of the pod does. While the mesh does not know the pod's workload
 * nobody can tell what binds it: nothing new is admitted, and live connections stay as they were judged last.
 */
export class PodPolicy {
  readonly #deps: PodPolicyDeps;
  readonly #stop: () => void;
  /** The mesh knew the workload once, does not now, and that was said. */
  #saidUnknown = false;
  /** All of the pod that a verdict depends on, as of the last pass over all live connections; null = judge them at the next change. */
  #passed: { readonly policy: EffectivePolicy; readonly program: PolicyProgram } | null = null;

  constructor(deps: PodPolicyDeps) {
    this.#deps = deps;
    this.#stop = deps.state.onLocal(deps.pod.uid, () => this.#reevaluate());
  }

  /**
   * Resolves when the connection may proceed; it is re-evaluated from now on. Rejects with POLICY_DENIED that names the
   * policy and rule, and with ROUTE_UNKNOWN_WORKLOAD when the pod's workload is not known and does not become so in time.
   */
  async admit(connection: Connection, facts: PolicyFacts): Promise<void> {
    // Registered first: a change between the verdict and the registration would be lost.
    connection.judgedBy = facts;
    const { pod, state, unknownReference } = this.#deps;
    const known = state.knownLocal(pod.uid);
    let local = known instanceof Promise ? await known : known;
    if (local.policy.pending && unknownReference === 'deny' && this.#judge(local, facts).allowed) {
      local = await this.#settled();
    }
    connection.assertNotCut();
    const verdict = this.#judge(local, facts);
    this.#logVerdict(verdict, facts, connection);
    const { allowed, policy, rule, reason } = verdict;
    connection.admitted({ allowed, policy, rule, reason });
    if (!verdict.allowed) throw denied(verdict, 'policy rejection');
  }

  /** Stops re-evaluating. */
  close(): void {
    this.#stop();
  }

  /** The pod once no listed policy is waited for any more. */
  async #settled(): Promise<KnownPod> {
    const { pod, state } = this.#deps;
    const local = await state.waitLocal(pod.uid, isSettled, POLICY_WAIT_MS);
    if (local !== null && isKnown(local)) return local;
    const now = state.local(pod.uid);
    throw now === null || isKnown(now) ? stillPending(now) : unknownWorkload(POLICY_WAIT_MS);
  }

  #reevaluate(): void {
    const { state, pod, log } = this.#deps;
    const local = state.local(pod.uid);
    if (local === null) return;
    this.#sayKnown(isKnown(local));
    // The policies that bind it are unknown, and its absence may be a mistake of the control plane.
    if (!isKnown(local)) {
      this.#passed = null;
      return;
    }
    const { policy } = local;
    const program = state.program(policy.setId);
    if (program === undefined) {
      this.#passed = null;
      // Nothing may pass that cannot be judged; the thread and its other pods go on.
      log.error({ podUid: pod.uid, setId: policy.setId }, 'policy.program-missing');
      for (const { connection } of this.#judged()) connection.cut(noPolicies());
      return;
    }
    // The same judged what was admitted since the last pass.
    if (program === this.#passed?.program && isDeepStrictEqual(policy, this.#passed.policy)) return;
    for (const { connection, facts } of this.#judged()) {
      const verdict = this.#judge(local, facts);
      if (verdict.allowed) continue;
      this.#deps.metrics.policyCuts += 1;
      this.#deps.log.info(
        {
          policy: verdict.policy,
          rule: verdict.rule,
          reason: verdict.reason,
          source: facts.sourceIp,
          sourceIdentity: facts.sourceIdentity,
          destination: facts.destinationIp,
          port: facts.destinationPort,
        },
        'policy.connection-cut',
      );
      connection.cut(denied(verdict, 'policy change'));
    }
    this.#passed = { policy, program };
  }

  #sayKnown(known: boolean): void {
    if (known && !this.#saidUnknown) return;
    const { pod, log } = this.#deps;
    const connections = [...this.#judged()].length;
    const fields = { podUid: pod.uid, connections };
    if (known) log.info(fields, 'policy.workload-known');
    // Without live connections it is no more than a pod that is about to go.
    else if (!this.#saidUnknown && connections > 0) {
      log.warn(fields, 'policy.workload-unknown');
    } else return;
    this.#saidUnknown = !known;
  }

  /** The live connections that were admitted, or are about to be. */
  *#judged(): Generator<{ readonly connection: Connection; readonly facts: PolicyFacts }> {
    for (const connection of this.#deps.connections) {
      const { judgedBy: facts } = connection;
      if (facts !== null) yield { connection, facts };
    }
  }

  #judge(local: KnownPod, facts: PolicyFacts): Verdict {
    const program = this.#deps.state.program(local.policy.setId);
    if (program === undefined) throw noPolicies();
    return judge(local.policy, program, facts, this.#deps.unknownReference);
  }

  #logVerdict(verdict: Verdict, facts: PolicyFacts, { facts: { trace } }: Connection): void {
    const level = this.#deps.infoLogging ? 'info' : 'debug';
    if (!this.#deps.log.isLevelEnabled(level)) return;
    const { pod } = this.#deps;
    this.#deps.log[level](
      {
        // Upstream's spans: which pod, and which of its connections.
        proxy: { wl: `${pod.namespace}/${pod.name}` },
        inbound: { ...(trace ? { id: trace.traceId } : {}), peer: facts.sourceIp },
        policy: verdict.policy,
        rule: verdict.rule,
        reason: verdict.reason,
        dryRun: verdict.dryRun,
        source: facts.sourceIp,
        sourceIdentity: facts.sourceIdentity,
        port: facts.destinationPort,
      },
      'policy.decision',
    );
  }
}

function isSettled(local: LocalPod): boolean {
  return isKnown(local) && !local.policy.pending;
}

function denied(verdict: Verdict, why: string): MeshError {
  return new MeshError('POLICY_DENIED', `${why}: ${describeVerdict(verdict)}`, {
    detail: { policy: verdict.policy, rule: verdict.rule, reason: verdict.reason },
  });
}

/** The state thread promises the program before the set that names it; without it nothing may pass. */
function noPolicies(): MeshError {
  return new MeshError('POLICY_DENIED', 'the policies of this workload are not known here');
}

function stillPending(local: LocalPod | null): MeshError {
  const missing = local?.policy.unknown.join(', ') ?? '';
  return new MeshError(
    'POLICY_DENIED',
    `the workload lists policies that are not known: ${missing}`,
    { detail: { policy: local?.policy.unknown[0] ?? null, reason: 'unknown-reference' } },
  );
}
