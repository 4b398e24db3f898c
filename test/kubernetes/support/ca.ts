/** A CA on the API server, in a system namespace of its own. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { CaClient, MAX_ANSWER_BYTES } from '../../../lib/identity/ca-client.ts';
import { requestFor } from '../../../lib/identity/csr.ts';
import { parseCaAnswer } from '../../../lib/identity/workload-certificate.ts';
import type { CaAnswer } from '../../../lib/identity/workload-certificate.ts';
import { CaActor } from '../../../services/ca/ca-actor.ts';
import { caConfig } from '../../../services/ca/config.ts';
import { openState } from '../../../services/ca/operations.ts';
import type { OpenedState } from '../../../services/ca/operations.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { keptLog, startActor } from '../../support/actor-context.ts';
import type { TestActor } from '../../support/actor-context.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { ownPort } from '../../support/ports.ts';
import { until } from '../../support/until.ts';
import type { Cluster, StoredTestObject, TestObject } from './cluster.ts';
import type { Gateway } from './gateway.ts';
import { pod } from './objects.ts';
import { underRole } from './rbac.ts';
import type { RoleAccount } from './rbac.ts';

/** A system namespace with the CA's account and MeshConfig, and the namespaces that get its roots. */
export interface CaCluster {
  /** The system namespace. */
  readonly system: string;
  /** The CA's account. */
  readonly account: RoleAccount;
  /** Replaces the MeshConfig by one that selects the namespaces of this CA alone, and has these lines, too. */
  configure(lines?: string): Promise<void>;
  /** Makes a namespace that the MeshConfig selects. */
  namespace(label: string): Promise<string>;
  /** A pod that runs on a node under an account. */
  pod(namespace: string, account: string, node: string): TestObject;
  /** Starts a CA under exactly the role of infra/kubernetes. */
  start(options?: {
    readonly via?: Gateway;
    readonly environment?: Readonly<Record<string, string>>;
  }): Promise<RunningCa>;
  /** Opens the state as `weft ca` does. */
  state(): Promise<OpenedState>;
}

/** A CA that listens. */
export interface RunningCa {
  readonly actor: TestActor;
  /** Asks with this token; null asks for the caller's own identity. */
  ask(token: string, identity: string | null, seconds?: number): Promise<CaAnswer>;
}

/** Makes the namespace and the account. */
export async function caCluster(t: ExecutionContext, cluster: Cluster): Promise<CaCluster> {
  const system = await cluster.namespace('system');
  const account = await underRole(cluster, 'weft-ca', { namespace: system });
  const configure: CaCluster['configure'] = async (lines = '') => {
    const own = `discoverySelectors: [{matchLabels: {weft-test: ${system}}}]`;
    await cluster.apply(meshConfig(system, `${own}\n${lines}`));
  };
  // All namespaces of the API server belong to a mesh without it, also those of other tests.
  await configure();
  const scratch = await makeScratch('ca-kubernetes');
  t.teardown(() => rm(scratch, { recursive: true, force: true }));
  const environment = async (via?: Gateway): Promise<Record<string, string>> => ({
    WEFT_SOURCE: 'kubernetes',
    KUBECONFIG: await cluster.kubeconfig({
      token: account.token,
      ...(via === undefined ? {} : { via }),
    }),
    POD_NAMESPACE: system,
    CA_TRUSTED_NODE_ACCOUNTS: `${system}/ztunnel`,
    ISTIOD_CUSTOM_HOST: '127.0.0.1',
  });
  return {
    system,
    account,
    configure,
    pod: (namespace, account, node) =>
      pod(namespace, `${account}-1`, { ip: '10.244.1.1', account, node }),
    namespace: (label) => cluster.namespace(label, { 'weft-test': system }),
    async start({ via, environment: extra } = {}) {
      const port = await ownPort();
      const bundle = join(scratch, `roots-${port}.pem`);
      const config = {
        ...caConfig.parse({
          ...(await environment(via)),
          WEFT_LISTEN: `127.0.0.1:${port}`,
          WEFT_CA_ROOT_BUNDLE_FILE: bundle,
          ...extra,
        }),
        settleMs: 500,
      };
      const actor = await startActor(t, new CaActor(config), 'ca');
      await until(() => actor.context.readiness.pending().length === 0, { what: 'the CA' });
      return { actor, ask: asking(t, `https://127.0.0.1:${port}`, bundle) };
    },
    async state() {
      const { log } = keptLog('cli');
      const opened = await openState(await environment(), { clock: systemClock, log });
      t.teardown(() => opened.close());
      return opened;
    },
  };
}

/** The ConfigMap of a MeshConfig. */
function meshConfig(namespace: string, mesh: string): TestObject {
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'istio', namespace },
    data: { mesh },
  };
}

function asking(t: ExecutionContext, address: string, rootCa: string): RunningCa['ask'] {
  return async (authToken, identity, seconds = 600) => {
    const client = new CaClient({
      address,
      rootCa,
      authToken,
      altHostname: null,
      clusterId: 'Kubernetes',
      headers: {},
      maxReceiveBytes: MAX_ANSWER_BYTES,
    });
    t.teardown(() => client.close());
    const { csrPem } = await requestFor(identity ?? 'spiffe://cluster.local/ns/a/sa/b');
    const chain = await client.createCertificate(
      { csr: csrPem, validitySeconds: seconds, impersonated: identity },
      AbortSignal.timeout(60_000),
    );
    client.close();
    return parseCaAnswer(chain);
  };
}

/** A token of an account, bound to a pod that is stored. */
export function boundToken(
  cluster: Cluster,
  pod: StoredTestObject | undefined,
  seconds?: number,
): Promise<string> {
  if (pod === undefined) throw new Error('the pod is stored');
  const { name, uid, namespace = '' } = pod.metadata;
  const account = (pod['spec'] as { readonly serviceAccountName: string }).serviceAccountName;
  return cluster.token(namespace, account, {
    audiences: ['istio-ca'],
    pod: { name, uid },
    ...(seconds === undefined ? {} : { seconds }),
  });
}
