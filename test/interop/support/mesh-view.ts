/** A control plane's workloads, services and policies, as a client of delta ADS gets them. */
import type { ExecutionContext } from 'ava';
import { istio } from '#proto/resources.js';
import { systemClock } from '../../../lib/clock/clock.ts';
import { openGrpcClient } from '../../../lib/grpc/client.ts';
import { MetricRegistry } from '../../../lib/metrics/registry.ts';
import {
  DeltaClient,
  XDS_MESSAGE_BYTES_MAX,
  createXdsMetrics,
} from '../../../lib/xds/delta-client.ts';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import { keptLog } from '../../support/actor-context.ts';
import { until } from '../../support/until.ts';
import { canonicalResource } from '../rows/canonical.ts';
import type { Fields } from '../rows/canonical.ts';
import { READER_POD } from './istio-cluster.ts';
import { ROOT_NAMESPACE } from './istiod.ts';

/** The resources of a control plane that belong to a namespace: name → content. */
export type MeshView = (namespace: string) => Readonly<Record<string, Fields>>;

/** Follows a control plane until the test ends; resolves when everything was received once. */
export async function viewMesh(
  t: ExecutionContext,
  target: { readonly address: string; readonly rootCa: string; readonly name: string | null },
  token: string,
): Promise<MeshView> {
  const held = new Map<string, { readonly type: string; readonly bytes: Uint8Array }>();
  const client = new DeltaClient({
    open: () =>
      openGrpcClient({
        address: target.address,
        rootCa: target.rootCa,
        altHostname: target.name,
        authToken: token,
        clusterId: 'Kubernetes',
        headers: {},
        maxReceiveBytes: XDS_MESSAGE_BYTES_MAX,
      }),
    node: {
      instanceIp: '10.244.0.2',
      podName: READER_POD,
      podNamespace: ROOT_NAMESPACE,
      nodeName: '',
      metadata: {},
      jsonMetadata: {},
    },
    sink: {
      versions: () => new Map(),
      apply: (type, { resources, removed }) => {
        for (const { name, bytes } of resources) {
          if (bytes !== null) held.set(`${type} ${name}`, { type, bytes: new Uint8Array(bytes) });
        }
        for (const name of removed) held.delete(`${type} ${name}`);
        return Promise.resolve([]);
      },
    },
    clock: systemClock,
    log: keptLog('view').log,
    metrics: createXdsMetrics(new MetricRegistry()),
  });
  t.teardown(() => client.close());
  await until(() => client.everSynced, { what: `the answers of ${target.address}` });
  return (namespace) => {
    const found = [...held]
      .map(([key, { type, bytes }]) => [key.split(' ')[1] ?? '', contentOf(type, bytes)] as const)
      .filter(([, content]) => content['namespace'] === namespace)
      .sort(([left], [right]) => (left < right ? -1 : 1));
    return Object.fromEntries(found);
  };
}

function contentOf(type: string, bytes: Uint8Array): Fields {
  if (type !== ADDRESS_TYPE) return plain(istio.security.Authorization.decode(bytes));
  const { workload, service } = istio.workload.Address.decode(bytes);
  return plain(workload ?? service ?? {});
}

function plain(message: object): Fields {
  return canonicalResource(JSON.parse(JSON.stringify(message)) as Fields);
}
