/** A mesh on demand without pods: a control plane, a CA, Redis, ingesters in processes of their own, and the state of a node-proxy. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { serviceByAddress, workloadOf } from '../../lib/state/lookups.ts';
import type { LookupKey } from '../../lib/state/view.ts';
import { WantSender } from '../../services/node-proxy/state-thread/on-demand/want-sender.ts';
import type { OnDemandSettings } from '../../services/node-proxy/state-thread/protocol.ts';
import { followTables } from '../../services/node-proxy/state-thread/state-feed.ts';
import { StateThread } from '../../services/node-proxy/state-thread/state-thread.ts';
import { StateClient } from '../../workers/listener/state-client.ts';
import { bareEnvironment } from './bare-environment.ts';
import { TableCopy, capturedLog, openBus } from './bus.ts';
import { createControlPlaneKit } from './control-plane-kit.ts';
import type { ControlPlaneKit } from './control-plane-kit.ts';
import { startTestRedis } from './redis.ts';
import type { TestRedis } from './redis.ts';
import { accountSubject } from './token-issuer.ts';
import { until } from './until.ts';

const HOST = fileURLToPath(new URL('ingester-process.ts', import.meta.url));

/** Objects of the mesh: a Service with one pod, and a pod without a Service. */
export const DEMO = `
apiVersion: v1
kind: Namespace
metadata: {name: demo, labels: {istio.io/dataplane-mode: ambient}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{port: 80, targetPort: 8080}], selector: {app: web}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: demo, labels: {app: web}}
spec: {nodeName: node-2, serviceAccountName: web, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: demo, labels: {app: alone}}
spec: {nodeName: node-3, serviceAccountName: alone, containers: [{name: c, image: i}]}
`;

/** See {@link createOnDemandKit}. */
export interface OnDemandKit {
  readonly redis: TestRedis;
  readonly plane: ControlPlaneKit;
  /** The names that are answered, as the table tells. */
  readonly names: TableCopy;
  readonly addresses: TableCopy;
  /** Starts an ingester. */
  ingester(environment?: Readonly<Record<string, string>>): Promise<ChildProcess>;
  /** Starts the mesh state of a node-proxy, with one listener thread's view of it. */
  node(name: string, settings?: Partial<OnDemandSettings> | null): Promise<NodeState>;
}

/** The mesh state of a node, and a client of it. */
export interface NodeState {
  readonly state: StateThread;
  readonly client: StateClient;
  /** Returns the destination that a connection of the pod finds at an address: `namespace/name` of a service or workload, or null. */
  at(ip: string, pod?: string): Promise<string | null>;
}

/** Starts Redis, the CA and the control plane with {@link DEMO}. */
export async function createOnDemandKit(t: ExecutionContext): Promise<OnDemandKit> {
  const redis = await startTestRedis(t, { nodes: ['node-1', 'node-2'] });
  const plane = await createControlPlaneKit(t);
  await plane.start();
  await plane.api.apply(DEMO);
  await plane.api.run('demo', 'web-1', ['10.0.2.1']);
  await plane.api.run('demo', 'alone', ['10.0.3.1']);
  const { bus } = openBus(t, redis.config('xds-ingester'), 'reader');
  const names = new TableCopy();
  const addresses = new TableCopy();
  bus.reader('names', 'mesh', names);
  bus.reader('addresses', 'mesh', addresses);
  return {
    redis,
    plane,
    names,
    addresses,
    ingester: (environment = {}) => startIngester(t, redis, plane, environment),
    node: (name, settings = {}) => startNode(t, redis, name, settings),
  };
}

/** Starts an ingester on demand in a process of its own. */
export async function startIngester(
  t: ExecutionContext,
  redis: TestRedis,
  plane: ControlPlaneKit,
  environment: Readonly<Record<string, string>> = {},
): Promise<ChildProcess> {
  const token = await plane.ca.issuer.mint(accountSubject('istio-system', 'ztunnel'));
  const target = await plane.target(token);
  const child = spawn(process.execPath, [HOST], {
    env: bareEnvironment({
      ...redis.environment('xds-ingester'),
      XDS_ADDRESS: target.address,
      XDS_ROOT_CA: target.rootCa,
      AUTH_TOKEN: token,
      XDS_ON_DEMAND: 'true',
      ...environment,
    }),
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  return child;
}

async function startNode(
  t: ExecutionContext,
  redis: TestRedis,
  name: string,
  settings: Partial<OnDemandSettings> | null,
): Promise<NodeState> {
  const { bus } = openBus(t, redis.config(`node-proxy.${name}`), 'node-proxy');
  const wanted = new WantSender({ log: capturedLog().log, add: (names) => bus.want(names) });
  let ready = false;
  // Longer than any answer takes on a busy machine, the start of an ingester included.
  const onDemand =
    settings === null ? null : { waitMs: 120_000, clusterId: 'Kubernetes', ...settings };
  const state = new StateThread(
    {
      node: name,
      dedicatedTo: null,
      logLevel: 'silent',
      logFormat: 'json',
      policyUnknownReference: 'deny',
      onDemand,
    },
    false,
    systemClock,
    {
      ready: () => (ready = true),
      identities: () => undefined,
      want: (names) => wanted.send(names),
      failed: (error) => t.fail(error.message),
    },
  );
  t.teardown(() => state.close());
  const feed = followTables(bus, (table, step) => state.feed(table, step));
  t.teardown(() => feed.close());
  const port = state.connect(1);
  t.teardown(() => port.close());
  const options = { onDemandWaitMs: onDemand?.waitMs ?? null };
  const client = new StateClient(port, systemClock, options);
  await until(() => ready, { what: 'the mesh state', timeoutMs: 20_000 });
  return {
    state,
    client,
    at: async (ip, pod = 'pod-1') => {
      const key: LookupKey = { kind: 'address', network: '', ip };
      await client.fetch([key], pod);
      const answer = client.get(key);
      if (answer === undefined) return null;
      const service = serviceByAddress(answer.services, '', ip, 'demo')?.service;
      const found = service ?? workloadOf(answer);
      return found === null ? null : `${found.namespace}/${found.name}`;
    },
  };
}
