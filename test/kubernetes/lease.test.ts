/** Leadership by a real Lease. */
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { LEASES, LeaseCandidate, leaseIdentity } from '../../lib/kubernetes/lease.ts';
import { resourcePath } from '../../lib/kubernetes/resource.ts';
import { keptLog } from '../support/actor-context.ts';
import { until } from '../support/until.ts';
import type { Cluster } from './support/cluster.ts';
import type { Gateway } from './support/gateway.ts';
import { kubernetesSuite } from './support/suite.ts';

/** Short enough for a test; a busy machine may lose a lease, which only makes another take it. */
const TIMES = { durationMs: 3_000, renewDeadlineMs: 2_000, retryMs: 300 };
/** No lease is lost, however busy the machine is. */
const LONG_TIMES = { durationMs: 60_000, renewDeadlineMs: 40_000, retryMs: 300 };

/** Competes until the test ends; notes who leads. */
function compete(
  t: ExecutionContext,
  cluster: Cluster,
  options: {
    readonly namespace: string;
    readonly leaders: Set<string>;
    readonly via?: Gateway;
    readonly times?: typeof TIMES;
  },
) {
  const identity = leaseIdentity();
  const { log, lines } = keptLog('test');
  const candidate = new LeaseCandidate(
    { namespace: options.namespace, name: 'election', identity, times: options.times ?? TIMES },
    {
      client: cluster.client(options.via === undefined ? {} : { via: options.via }),
      clock: systemClock,
      log,
    },
  );
  void candidate.run(async (signal) => {
    options.leaders.add(identity);
    await new Promise<void>((resolve) => {
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    options.leaders.delete(identity);
  });
  t.teardown(() => candidate.close());
  return { candidate, identity, lines };
}

interface StoredLease {
  readonly spec: { readonly holderIdentity: string; readonly leaseTransitions: number };
}
const read = async (cluster: Cluster, namespace: string): Promise<StoredLease> =>
  (await cluster.admin.get(resourcePath(LEASES, { namespace, name: 'election' }))) as StoredLease;

await kubernetesSuite('lease', (test) => {
  test('one of several candidates leads, and another at once when it is closed', async (t, cluster) => {
    const namespace = await cluster.namespace('lease');
    const leaders = new Set<string>();
    const candidates = [1, 2, 3].map(() =>
      compete(t, cluster, { namespace, leaders, times: LONG_TIMES }),
    );
    const first = await until(() => candidates.find(({ candidate }) => candidate.held), {
      what: 'one leads',
    });
    await until(() => leaders.size === 1, { what: 'its work runs' });
    t.is((await read(cluster, namespace)).spec.holderIdentity, first.identity);
    await first.candidate.close();
    t.false(leaders.has(first.identity));
    const second = await until(() => candidates.find(({ candidate }) => candidate.held), {
      what: 'another leads',
    });
    t.not(second.identity, first.identity);
    t.is((await read(cluster, namespace)).spec.holderIdentity, second.identity);
  });

  test('a leader without the API server stops before another begins', async (t, cluster) => {
    const namespace = await cluster.namespace('lease');
    const leaders = new Set<string>();
    const via = await cluster.gateway();
    const cutOff = compete(t, cluster, { namespace, leaders, via });
    await until(() => leaders.has(cutOff.identity), { what: 'the first leads' });
    const other = compete(t, cluster, { namespace, leaders });
    via.close();
    let both = false;
    await until(
      () => {
        both ||= leaders.size > 1;
        return leaders.has(other.identity);
      },
      { what: 'the other leads' },
    );
    t.false(both);
    t.false(cutOff.candidate.held);
    t.is((await read(cluster, namespace)).spec.leaseTransitions, 1);
    via.restore();
  });
});
