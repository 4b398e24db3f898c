/** One API server with Istio's resource types and an istiod, for the tests of a file. */
import { readFile } from 'node:fs/promises';
import { parseAllDocuments } from 'yaml';
import test, { registerCompletionHandler } from 'ava';
import type { ExecutionContext } from 'ava';
import { present } from '../../../lib/errors/assert.ts';
import { Cluster } from '../../kubernetes/support/cluster.ts';
import { adminClient, installDefinitions } from '../../kubernetes/support/definitions.ts';
import { pod } from '../../kubernetes/support/objects.ts';
import { startApiServer } from '../../kubernetes/support/api-server.ts';
import { kubernetesPrograms } from '../../kubernetes/support/programs.ts';
import type { KubernetesPrograms } from '../../kubernetes/support/programs.ts';
import { goProgram } from './go.ts';
import { ISTIOD_TAGS, Istiod, ROOT_NAMESPACE } from './istiod.ts';

/** A cold build compiles most of Istio: nine minutes of one core. */
const BUILD_TIMEOUT_MS = 900_000;

/** The node of the account that reads the mesh. */
export const NODE = 'node-1';

/** The pod of that account. */
export const READER_POD = 'ztunnel-1';

/** A cluster with istiod. */
export interface IstioCluster {
  readonly cluster: Cluster;
  readonly istiod: Istiod;
}

/** Declares a test that gets the cluster; all tests of a file share it and run one after another. */
export type IstioTest = (
  title: string,
  body: (t: ExecutionContext, parts: IstioCluster) => Promise<void>,
) => void;

interface Programs extends KubernetesPrograms {
  readonly istiod: string;
}

async function build(): Promise<Programs | { readonly missing: string }> {
  const istiod = await goProgram('istiod', { tags: ISTIOD_TAGS, timeoutMs: BUILD_TIMEOUT_MS });
  if ('missing' in istiod) return istiod;
  const programs = await kubernetesPrograms();
  return 'missing' in programs ? programs : { ...programs, istiod: istiod.path };
}

/** Registers the tests of a file. Without the programs they are skipped, and the reason is told. */
export async function istioSuite(
  name: string,
  declare: (declared: IstioTest) => void,
): Promise<void> {
  const programs = await build();
  if ('missing' in programs) {
    const reason = programs.missing;
    process.stderr.write(`\nSKIPPED interop: ${name}: ${reason}\n`);
    declare((title) => test.serial.skip(`${name}: ${title}: ${reason}`, (t) => t.pass()));
    return;
  }
  let running: { server: Awaited<ReturnType<typeof startApiServer>>; istiod: Istiod } | null = null;
  // The API server and istiod end with this process, which would wait for them.
  registerCompletionHandler(() => process.exit());
  test.serial(`${name}: istiod serves`, async (t) => {
    t.timeout(180_000);
    const server = await startApiServer(programs);
    const texts = await Promise.all(programs.definitions.map((file) => readFile(file, 'utf8')));
    const documents = texts.flatMap((text) =>
      parseAllDocuments(text).map((document): unknown => document.toJS()),
    );
    await installDefinitions(server, documents);
    const client = adminClient(server);
    await client.create('/api/v1/namespaces', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: ROOT_NAMESPACE },
    });
    client.close();
    const istiod = await Istiod.create(programs.istiod, server);
    running = { server, istiod };
    await istiod.start();
    t.pass();
  });
  declare((title, body) =>
    test.serial(`${name}: ${title}`, async (t) => {
      t.timeout(180_000);
      const { server, istiod } = present(running, 'istiod serves');
      await body(t, { cluster: new Cluster(server, t), istiod });
    }),
  );
}

/** A token of the account that reads the mesh, bound to its pod on {@link NODE}. */
export async function readerToken(cluster: Cluster): Promise<string> {
  const reader = pod(ROOT_NAMESPACE, READER_POD, {
    ip: '10.244.0.2',
    node: NODE,
    account: 'ztunnel',
    labels: { app: 'ztunnel' },
  });
  const [stored] = await cluster.apply(reader);
  const { uid, name } = present(stored, 'the pod of the reader').metadata;
  return cluster.token(ROOT_NAMESPACE, 'ztunnel', { audiences: ['istio-ca'], pod: { name, uid } });
}
