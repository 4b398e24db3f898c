/** The work that only one replica does: whatever is written to the API server. */
import { LeaseCandidate, leaseIdentity } from '../../../lib/kubernetes/lease.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { WriteQueue, writeQueueMetrics } from '../../../lib/kubernetes/write-queue.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { MetricRegistry } from '../../../lib/metrics/registry.ts';
import type { MeshMap } from '../mapping/mesh-map.ts';
import type { ObjectSource } from '../sources/object-source.ts';
import type { AddressRanges } from '../store/address-allocation.ts';
import { EntryAddresses } from './entry-addresses.ts';
import { NodeTaints } from './node-taints.ts';
import { StatusWriter } from './status-writer.ts';
import { WebhookBundle, webhookName } from './webhook-bundle.ts';

/** Istio's name, so that a running istiod and Weft never write at the same time. */
const LEASE = 'istio-status-leader';

/** DaemonSets of the root namespace; both must be ready on a node before a pod there can be enrolled. */
const NODE_DAEMON_SETS = ['weft-node-agent', 'weft-node-proxy'];

/** Settings of the leader's work. */
export interface LeaderOptions {
  /** Holds the lease. */
  readonly rootNamespace: string;
  readonly ranges: AddressRanges;
  /** The roots of the webhook's certificate; null without a webhook. */
  readonly webhookRoots: (() => Promise<string>) | null;
}

/** Collaborators of a {@link Leader}. */
export interface LeaderParts {
  readonly source: ObjectSource;
  readonly map: MeshMap;
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: MetricRegistry;
}

/** Competes for the lease, and writes statuses, addresses, taints and the webhook's roots while it has it. */
export class Leader {
  readonly #options: LeaderOptions;
  readonly #parts: LeaderParts;
  readonly #candidate: LeaseCandidate;
  #writes: WriteQueue | null = null;

  constructor(options: LeaderOptions, parts: LeaderParts) {
    this.#options = options;
    this.#parts = parts;
    const { rootNamespace } = options;
    this.#candidate = new LeaseCandidate(
      { namespace: rootNamespace, name: LEASE, identity: leaseIdentity() },
      parts,
    );
    parts.metrics.gauge(
      'weft_control_plane_leader',
      '1 while this replica writes statuses and addresses',
      [],
      (gauge) => gauge.set(this.#candidate.held ? 1 : 0),
    );
  }

  /** Competes until it is closed. */
  run(): Promise<void> {
    const metrics = writeQueueMetrics(this.#parts.metrics, () => this.#writes?.size ?? 0);
    return this.#candidate.run(async (signal) => {
      const { source, map, client, clock, log } = this.#parts;
      const { webhookRoots, rootNamespace } = this.#options;
      const writes = new WriteQueue({ clock, log, metrics });
      this.#writes = writes;
      const deps = { source, client, writes, clock, log };
      const endings: (() => void | Promise<void>)[] = [
        new EntryAddresses(this.#options.ranges, deps).start(),
        new StatusWriter(map, deps).start(),
        new NodeTaints({ namespace: rootNamespace, names: NODE_DAEMON_SETS }, deps).start(),
      ];
      if (webhookRoots !== null) {
        const name = webhookName(rootNamespace);
        endings.push(
          new WebhookBundle(name, { client, writes, clock, log, roots: webhookRoots }).start(),
        );
      }
      await new Promise<void>((resolve) => {
        if (signal.aborted) resolve();
        else signal.addEventListener('abort', () => resolve(), { once: true });
      });
      await Promise.all(endings.map(async (end) => end()));
      await writes.close();
      this.#writes = null;
    });
  }

  /** Ends the work and gives the lease up. */
  close(): Promise<void> {
    return this.#candidate.close();
  }
}
