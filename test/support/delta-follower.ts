/** The client of Weft's own ingester, whose resources a test looks at. */
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import type { SecureClient } from '../../lib/grpc/client.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { DeltaClient, createXdsMetrics } from '../../lib/xds/delta-client.ts';
import type { ResourceType } from '../../lib/xds/type-urls.ts';
import { keptLog } from './actor-context.ts';
import type { LogLine } from './actor-context.ts';

/** A client that runs. */
export interface DeltaFollower {
  readonly client: DeltaClient;
  readonly lines: LogLine[];
  /** Name → version of what it holds, by type. */
  readonly held: ReadonlyMap<ResourceType, ReadonlyMap<string, string>>;
  /** How often each type's subscription was opened. */
  subscribed(type: ResourceType): number;
}

/** Follows a server until the test ends. It refuses the resources that `refuses` names, and keeps their last good version. */
export function followDelta(
  t: ExecutionContext,
  open: () => SecureClient,
  refuses: (name: string) => boolean = () => false,
): DeltaFollower {
  const { log, lines } = keptLog('follower');
  const held = new Map<ResourceType, Map<string, string>>();
  const of = (type: ResourceType): Map<string, string> => {
    const known = held.get(type) ?? new Map<string, string>();
    held.set(type, known);
    return known;
  };
  const client = new DeltaClient({
    open,
    node: {
      instanceIp: '10.200.0.2',
      podName: 'follower',
      podNamespace: 'istio-system',
      nodeName: '',
      metadata: {},
      jsonMetadata: {},
    },
    sink: {
      versions: of,
      apply: (type, { resources, removed }) => {
        const refused = resources.filter(({ name }) => refuses(name));
        for (const { name, version } of resources) {
          if (!refuses(name)) of(type).set(name, version);
        }
        for (const name of removed) of(type).delete(name);
        return Promise.resolve(refused.map(({ name }) => ({ name, reason: 'not now' })));
      },
    },
    clock: systemClock,
    log,
    metrics: createXdsMetrics(new MetricRegistry()),
  });
  t.teardown(() => client.close());
  return {
    client,
    lines,
    held,
    subscribed: (type) =>
      lines.filter((line) => line.message === 'xds.subscribed' && line['type'] === type).length,
  };
}
