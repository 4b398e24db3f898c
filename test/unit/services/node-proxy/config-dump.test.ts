import test from 'ava';
import { EndpointSet } from '../../../../lib/state/endpoint-set.ts';
import { dumpPolicy } from '../../../../services/node-proxy/dump/policy.ts';
import { dumpService } from '../../../../services/node-proxy/dump/service.ts';
import { dumpWorkload } from '../../../../services/node-proxy/dump/workload.ts';
import { configDump } from '../../../../services/node-proxy/dump/config-dump.ts';
import type { ConfigDumpSources } from '../../../../services/node-proxy/dump/config-dump.ts';
import { nodeProxyConfig } from '../../../../services/node-proxy/config.ts';
import { ServedPod } from '../../../../services/node-proxy/pods/served-pod.ts';
import { slicedSort } from '../../../../services/node-proxy/state-thread/sliced-sort.ts';
import { configDumpSchema } from '../../../support/config-dump-schema.ts';
import {
  authorizationFixture,
  matchFixture,
  serviceFixture,
  workloadFixture,
} from '../../../support/model-fixtures.ts';
import { connectionRecord } from '../../../support/records.ts';

const gateway = (port: number) => ({
  destination: { kind: 'address', network: 'net', ip: '10.0.0.9' } as const,
  hboneMtlsPort: port,
});

const full = workloadFixture({
  uid: 'full',
  addresses: ['10.0.0.1', 'fd00::1'],
  waypoint: gateway(15_008),
  networkGateway: {
    destination: { kind: 'hostname', namespace: 'ns', hostname: 'gw.example' },
    hboneMtlsPort: 15_008,
  },
  network: 'net',
  hostname: 'full.example',
  nativeTunnel: true,
  applicationTunnel: { protocol: 'PROXY', port: 0 },
  services: { 'demo/web.demo.svc.cluster.local': { 80: 8080 } },
  authorizationPolicies: ['demo/p'],
  status: 'UNHEALTHY',
  locality: { region: 'r', zone: 'z', subzone: '' },
  networkMode: 'HOST_NETWORK',
});

const everything = matchFixture({
  namespaces: [{ kind: 'exact', value: 'a' }],
  notNamespaces: [{ kind: 'prefix', value: 'b' }],
  principals: [{ kind: 'suffix', value: 'c' }],
  notPrincipals: [{ kind: 'presence' }],
  sourceIps: [{ address: '10.0.0.0', length: 8 }],
  destinationIps: [{ address: 'fd00::', length: 16 }],
  destinationPorts: [80],
});

const pod = (uid: string, state: 'Pending' | 'Up'): ServedPod => {
  const info = { uid, name: uid, namespace: 'demo', serviceAccount: 'sa' };
  const served = new ServedPod(info, 3, { inode: '1', device: '1' });
  served.state = state;
  return served;
};

const sources: ConfigDumpSources = {
  config: nodeProxyConfig.parse({ CA_ROOT_CA: '/x', REDIS_URL: 'unix:///x' }),
  async *state(section) {
    if (section === 'workloads') {
      yield [full, workloadFixture()].map((one) => JSON.stringify(dumpWorkload(one))).join(',');
      yield JSON.stringify(dumpWorkload(workloadFixture({ workloadType: 'job' })));
    } else if (section === 'services') {
      const service = serviceFixture({
        addresses: [
          { network: 'net', ip: '10.96.0.1', length: null },
          { network: '', ip: '10.97.0.0', length: 16 },
        ],
        waypoint: gateway(15_008),
        weightedWaypoints: [{ destination: gateway(15_008), weight: 7 }],
        loadBalancing: {
          routingPreference: ['REGION', 'ZONE'],
          mode: 'FAILOVER',
          healthPolicy: 'ONLY_HEALTHY',
        },
        ipFamilies: 'DUAL',
      });
      yield JSON.stringify(
        dumpService({
          service,
          endpoints: new EndpointSet(service.loadBalancing, [
            { workload: full, ports: { 80: 8080 } },
          ]),
        }),
      );
    } else {
      const policy = authorizationFixture({ rules: [{ clauses: [{ matches: [everything] }] }] });
      yield JSON.stringify(dumpPolicy(policy));
    }
  },
  certificates: () => [
    { identity: 'spiffe://b', state: 'Initializing', certChain: [], rootCerts: [] },
    { identity: 'spiffe://a', state: 'Unavailable: why', certChain: [], rootCerts: [] },
  ],
  pods: () =>
    new Map([
      ['up', pod('up', 'Up')],
      ['new', pod('new', 'Pending')],
    ]),
  connections: async () => [
    connectionRecord({
      podUid: 'up',
      direction: 'inbound',
      protocol: 'HBONE',
      forwardedHost: 'web.demo.svc',
      actualDestination: '10.0.0.2:15008',
    }),
    connectionRecord({
      podUid: 'up',
      protocol: 'DOUBLEHBONE',
      actualDestination: '10.0.0.9:15008',
    }),
    ...Array.from({ length: 450 }, () => connectionRecord({ podUid: 'up' })),
    connectionRecord({ podUid: 'gone' }),
  ],
};

async function dumped(): Promise<Record<string, unknown>> {
  let text = '';
  for await (const part of configDump(sources)) text += part;
  return JSON.parse(text) as Record<string, unknown>;
}

// spec: observability.md §4.1
test('the config dump has the shape that istioctl parses', async (t) => {
  const dump = await dumped();
  const parsed = configDumpSchema.safeParse(dump);
  t.is(parsed.error?.message, undefined);
  t.deepEqual(Object.keys(dump), [
    'workloads',
    'services',
    'policies',
    'stagedServices',
    'staticConfig',
    'version',
    'config',
    'certificates',
    'workloadState',
  ]);
  t.like(dump, {
    certificates: [{ identity: 'spiffe://a' }, { identity: 'spiffe://b' }],
    workloads: [
      {
        waypoint: { destination: 'net/10.0.0.9' },
        networkGateway: { destination: 'ns/gw.example' },
      },
      { status: 'Healthy' },
    ],
    services: [{ vips: ['net/10.96.0.1'], cidrVips: [{ network: '', cidr: '10.97.0.0/16' }] }],
  });
});

// spec: inpod.md §8
test('each pod is shown with its state, and its connections once it is up', async (t) => {
  const { workloadState } = (await dumped()) as {
    workloadState: Record<string, Record<string, unknown>>;
  };
  t.deepEqual(Object.keys(workloadState), ['up', 'new']);
  t.false('connections' in (workloadState['new'] ?? {}));
  const { inbound, outbound } = (workloadState['up'] ?? {})['connections'] as Record<
    string,
    object[]
  >;
  t.deepEqual(inbound, [
    {
      src: '10.0.0.1:40000',
      originalDst: 'web.demo.svc',
      actualDst: '10.0.0.2:80',
      protocol: 'HBONE',
    },
  ]);
  t.is(outbound?.length, 451);
  t.like(outbound?.[0], { actualDst: '10.0.0.9:15008', protocol: 'DOUBLEHBONE' });
});

test('the dump holds no secret of the configuration', async (t) => {
  const text = JSON.stringify((await dumped())['config']);
  t.false(/"(password|key|token)"/i.test(text));
});

test('a sort in slices is a sort, and lets others run', async (t) => {
  const items = Array.from({ length: 5_000 }, (_, index) => (index * 7_919) % 5_003);
  let breaths = 0;
  const sorted = await slicedSort(
    items,
    (left, right) => left - right,
    async () => {
      breaths += 1;
    },
  );
  t.deepEqual(
    sorted,
    items.toSorted((left, right) => left - right),
  );
  t.true(breaths > 50);
  t.deepEqual(
    await slicedSort(
      [],
      () => 0,
      async () => undefined,
    ),
    [],
  );
});
