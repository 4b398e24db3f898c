/** Statuses and addresses are written by one replica. */
import { once } from 'node:events';
import { until } from '../support/until.ts';
import { spawnControlPlane, startCa, startControlPlane } from './support/control-plane.ts';
import type { Cluster, StoredTestObject, TestObject } from './support/cluster.ts';
import { kubernetesSuite } from './support/suite.ts';

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly observedGeneration?: number;
}

const policy = (namespace: string, name: string, action: string): TestObject => ({
  apiVersion: 'security.istio.io/v1',
  kind: 'AuthorizationPolicy',
  metadata: { name, namespace },
  spec: {
    action,
    rules: [{ to: [{ operation: { ports: ['80'] } }] }],
    ...(action === 'CUSTOM' ? { provider: { name: 'outside' } } : {}),
  },
});

const entry = (namespace: string, name: string, hosts: readonly string[]): TestObject => ({
  apiVersion: 'networking.istio.io/v1',
  kind: 'ServiceEntry',
  metadata: { name, namespace },
  spec: {
    hosts,
    location: 'MESH_EXTERNAL',
    resolution: 'DNS',
    ports: [{ number: 443, name: 'tls', protocol: 'TLS' }],
  },
});

const statusOf = (object: StoredTestObject) =>
  (object['status'] ?? {}) as {
    readonly conditions?: readonly Condition[];
    readonly addresses?: readonly { readonly value: string; readonly host: string }[];
  };

async function accepted(cluster: Cluster, object: TestObject): Promise<Condition | undefined> {
  const { conditions = [] } = statusOf(await cluster.get(object));
  return conditions.find(({ type }) => type === 'ZtunnelAccepted');
}

/** Writes a condition as an istiod does, and returns it. */
async function writtenByIstiod(
  cluster: Cluster,
  { apiVersion, kind, metadata: { name, namespace = '' } }: TestObject,
): Promise<unknown> {
  const foreign = {
    type: 'ZtunnelAccepted',
    status: 'True',
    reason: 'Accepted',
    message: 'by istiod',
    lastTransitionTime: '2026-01-01T00:00:00Z',
  };
  await cluster.admin.apply(
    `/apis/security.istio.io/v1/namespaces/${namespace}/authorizationpolicies/${name}/status`,
    { apiVersion, kind, metadata: { name, namespace }, status: { conditions: [foreign] } },
    { fieldManager: 'pilot-discovery' },
  );
  return foreign;
}

await kubernetesSuite('leader', (test) => {
  test('conditions are written with their generation, and only when they change', async (t, cluster) => {
    const namespace = await cluster.namespace('status');
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace });
    await plane.ready();
    const object = policy(namespace, 'web', 'DENY');
    await cluster.apply(object);
    const first = await until(() => accepted(cluster, object), { what: 'the first condition' });
    t.like(first, { status: 'True', observedGeneration: 1 });
    const { resourceVersion } = (await cluster.get(object)).metadata;
    await cluster.apply(policy(namespace, 'web', 'CUSTOM'));
    const second = await until(
      async () => {
        const condition = await accepted(cluster, object);
        return condition?.observedGeneration === 2 ? condition : null;
      },
      { what: 'the second condition' },
    );
    t.like(second, { status: 'False', reason: 'UnsupportedValue' });
    t.not((await cluster.get(object)).metadata.resourceVersion, resourceVersion);
    // A change elsewhere leads to another refresh, and to no write.
    const after = (await cluster.get(object)).metadata.resourceVersion;
    await cluster.apply(policy(namespace, 'other', 'DENY'));
    await until(() => accepted(cluster, policy(namespace, 'other', 'DENY')), { what: 'the other' });
    t.is((await cluster.get(object)).metadata.resourceVersion, after);
  });

  test('conditions that another controller owns are left alone', async (t, cluster) => {
    const namespace = await cluster.namespace('status');
    const object = policy(namespace, 'web', 'DENY');
    await cluster.apply(object);
    const foreign = await writtenByIstiod(cluster, object);
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace });
    await plane.ready();
    await until(
      () => plane.hosted.lines.some(({ message }) => message === 'status.owned-by-another'),
      { what: 'it is told' },
    );
    t.deepEqual(statusOf(await cluster.get(object)).conditions, [foreign] as never);
  });

  test('each host gets one address of each family, and no address is given twice', async (t, cluster) => {
    const namespace = await cluster.namespace('vip');
    const names = Array.from({ length: 20 }, (_, index) => `entry-${index}`);
    const entries = names.map((name) =>
      entry(namespace, name, [`${name}.${namespace}.example.com`]),
    );
    await cluster.apply(...entries.slice(0, 10));
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace });
    await plane.ready();
    await cluster.apply(...entries.slice(10));
    const values = await until(
      async () => {
        const stored = await Promise.all(entries.map((object) => cluster.get(object)));
        const all = stored.flatMap((object) => statusOf(object).addresses ?? []);
        return all.length === 40 ? all.map(({ value }) => value) : null;
      },
      { what: 'all addresses' },
    );
    t.is(new Set(values).size, 40);
    t.is(values.filter((value) => value.startsWith('240.240.')).length, 20);
    const host = `entry-0.${namespace}.example.com`;
    await plane.addressesWhen(namespace, (addresses) =>
      addresses.some(
        ({ name, content }) =>
          name === `${namespace}/${host}` &&
          (content['addresses'] as readonly unknown[]).length === 2,
      ),
    );
  });

  test('with three replicas, another goes on when the leader is gone in the middle of its writes', async (t, cluster) => {
    const namespace = await cluster.namespace('replicas');
    const ca = await startCa(t, namespace);
    const gateways = await Promise.all([1, 2, 3].map(() => cluster.gateway()));
    const replicas = await Promise.all(
      gateways.map((via) => startControlPlane(t, cluster, { rootNamespace: namespace, ca, via })),
    );
    await Promise.all(replicas.map((replica) => replica.ready()));
    const leads = async (index: number): Promise<boolean> =>
      /^weft_control_plane_leader 1$/m.test((await replicas[index]?.hosted.metrics()) ?? '');
    const findLeader = async (except: number): Promise<number> => {
      let found = -1;
      await until(
        async () => {
          const all = await Promise.all(replicas.map((_, index) => leads(index)));
          found = all.findIndex((leading, index) => leading && index !== except);
          return found >= 0;
        },
        { what: 'a replica leads' },
      );
      return found;
    };
    const leader = await findLeader(-1);
    const policies = Array.from({ length: 30 }, (_, index) =>
      policy(namespace, `policy-${index}`, 'DENY'),
    );
    await cluster.apply(...policies.slice(0, 15));
    await until(
      async () => {
        for (const object of policies.slice(0, 15))
          if (await accepted(cluster, object)) return true;
        return false;
      },
      { what: 'it has begun to write' },
    );
    gateways[leader]?.close();
    await cluster.apply(...policies.slice(15));
    const next = await findLeader(leader);
    t.not(next, leader);
    await until(
      async () => {
        const conditions = await Promise.all(policies.map((object) => accepted(cluster, object)));
        return conditions.every((condition) => condition?.status === 'True');
      },
      { what: 'all conditions are written' },
    );
    t.false(await leads(leader));
    gateways[leader]?.restore();
  });

  test('a leader that is killed in the middle of its writes leaves no status wrong, and none that an istiod owns is written', async (t, cluster) => {
    const namespace = await cluster.namespace('killed');
    const ca = await startCa(t, namespace);
    const foreign = policy(namespace, 'foreign', 'DENY');
    await cluster.apply(foreign);
    const condition = await writtenByIstiod(cluster, foreign);
    const replicas = await Promise.all(
      [1, 2, 3].map(() => spawnControlPlane(t, cluster, { rootNamespace: namespace, ca })),
    );
    const leader = await until(() => replicas.find(({ logged }) => logged('lease.acquired')), {
      what: 'a process to lead',
    });
    const policies = (action: string): TestObject[] =>
      Array.from({ length: 40 }, (_, index) => policy(namespace, `policy-${index}`, action));
    await Promise.all(policies('DENY').map((object) => cluster.apply(object)));
    const anyAccepted = async (): Promise<boolean> => {
      const found = await Promise.all(policies('DENY').map((object) => accepted(cluster, object)));
      return found.some((one) => one !== undefined);
    };
    await until(anyAccepted, { what: 'the leader to write' });
    const changes = policies('CUSTOM').map((object) => cluster.apply(object));
    leader.child.kill('SIGKILL');
    await Promise.all([once(leader.child, 'exit'), ...changes]);
    await cluster.apply(policy(namespace, 'foreign', 'CUSTOM'));
    await until(
      async () => {
        const found = await Promise.all(
          policies('CUSTOM').map((object) => accepted(cluster, object)),
        );
        return found.every((one) => one?.observedGeneration === 2 && one.status === 'False');
      },
      { what: 'the next leader to write every status' },
    );
    const next = replicas.filter((one) => one !== leader && one.logged('lease.acquired'));
    t.is(next.length, 1, 'one of the others leads');
    await until(() => next[0]?.logged('status.owned-by-another'), { what: 'it is told' });
    for (const object of policies('CUSTOM')) {
      t.deepEqual(await statusManagers(cluster, object), ['Apply weft-status']);
    }
    t.deepEqual(statusOf(await cluster.get(foreign)).conditions, [condition] as never);
    t.deepEqual(await statusManagers(cluster, foreign), ['Apply pilot-discovery']);
  });
});

/** Returns the managers of the status of an object, each with its operation. */
async function statusManagers(cluster: Cluster, object: TestObject): Promise<string[]> {
  const { metadata } = (await cluster.get(object)) as unknown as {
    readonly metadata: {
      readonly managedFields: readonly {
        readonly manager: string;
        readonly operation: string;
        readonly subresource?: string;
      }[];
    };
  };
  return metadata.managedFields
    .filter(({ subresource }) => subresource === 'status')
    .map(({ manager, operation }) => `${operation} ${manager}`)
    .toSorted();
}
