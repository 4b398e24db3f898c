/** Changes pods through the API server at a rate: readiness, and each tenth time a pod that is replaced by another. */
import type { KubernetesClient } from '../../lib/kubernetes/client.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { BigMesh } from '../bench/lib/big-mesh.ts';

/** Each so many changes replace a pod. */
const REPLACED_EACH = 10;
/** Changes under way at once; the API server takes a few milliseconds for one. */
const MAX_UNDER_WAY = 64;
const MS_PER_SECOND = 1_000;

interface PodObject {
  readonly metadata: { readonly name: string; readonly namespace: string; readonly uid: string };
  readonly status: object;
}

/** Counts of a churn. */
export interface Churned {
  readonly changes: number;
  readonly failed: number;
  /** The first failure. */
  readonly problem: string | null;
}

/** Changes pods until `seconds` are over. Changes that the API server has no time for are left out. */
export async function churn(
  client: KubernetesClient,
  mesh: BigMesh,
  { pods, perSecond, seconds }: { pods: number; perSecond: number; seconds: number },
): Promise<Churned> {
  const under = new Set<Promise<void>>();
  /** The names of pods that were replaced, by index. */
  const names = new Map<number, string>();
  let changes = 0;
  let failed = 0;
  let problem: string | null = null;
  const begin = (number: number): void => {
    const work = change(client, mesh, names, { index: number % pods, number })
      .then(() => void (changes += 1))
      .catch((error: unknown) => {
        failed += 1;
        problem ??= errorText(error);
      })
      .finally(() => under.delete(work));
    under.add(work);
  };
  const begun = performance.now();
  let next = 0;
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => {
      const passed = (performance.now() - begun) / MS_PER_SECOND;
      for (const due = passed * perSecond; next < due; next += 1) {
        if (under.size < MAX_UNDER_WAY) begin(next);
      }
      if (passed < seconds) return;
      clearInterval(timer);
      resolve();
    }, MS_PER_SECOND / perSecond);
  });
  await Promise.all(under);
  return { changes, failed, problem };
}

async function change(
  client: KubernetesClient,
  mesh: BigMesh,
  names: Map<number, string>,
  { index, number }: { readonly index: number; readonly number: number },
): Promise<void> {
  const [pod] = JSON.parse(mesh.pod(index, { ready: number % 2 === 0 })) as [PodObject];
  const { uid: _uid, ...metadata } = pod.metadata;
  const folder = `/api/v1/namespaces/${metadata.namespace}/pods`;
  const current = names.get(index) ?? metadata.name;
  if (number % REPLACED_EACH > 0) {
    await writeStatus(client, `${folder}/${current}`, pod.status);
    return;
  }
  const query = { gracePeriodSeconds: '0' };
  await client.request({ method: 'DELETE', path: `${folder}/${current}`, query });
  const name = `${metadata.name}-${number}`;
  await client.create(folder, { ...pod, metadata: { ...metadata, name } });
  names.set(index, name);
  await writeStatus(client, `${folder}/${name}`, pod.status);
}

async function writeStatus(client: KubernetesClient, path: string, status: object): Promise<void> {
  await client.request({
    method: 'PATCH',
    path: `${path}/status`,
    contentType: 'application/merge-patch+json',
    body: { status },
  });
}
