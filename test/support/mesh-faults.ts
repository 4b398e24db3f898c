/** Causes failures in a whole mesh, and checks that it has recovered. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { ExecutionContext } from 'ava';
import type { Load } from './load.ts';
import type { PodLine } from '../../services/cli/get/pods.ts';
import type { Outcome, TestMesh } from './mesh.ts';
import { until } from './until.ts';

/** The leases and back-offs of a killed process end within this time. */
const TAKES_EFFECT_MS = 60_000;
/** The number of log lines of each proxy that are shown when a connection failed. */
const LOGGED_LINES = 20;

/** SIGKILLs processes and waits until the kernel has ended them; their parent may not have collected them yet. */
export async function killAll(pids: readonly number[]): Promise<void> {
  for (const pid of pids) process.kill(pid, 'SIGKILL');
  for (const pid of pids) await until(() => hasEnded(pid), { what: `process ${pid} to end` });
}

async function hasEnded(pid: number): Promise<boolean> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    // The state follows the command, which is in parentheses.
    return /^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return true;
    throw error;
  }
}

/** Stops the supervisor while `work` runs, so that ended processes are not restarted. */
export async function withoutRestarts<T>(mesh: TestMesh, work: () => Promise<T>): Promise<T> {
  const { pid } = (await mesh.status()).supervisor;
  process.kill(pid, 'SIGSTOP');
  try {
    return await work();
  } finally {
    process.kill(pid, 'SIGCONT');
  }
}

/** Waits until every killed process has been replaced and all actors are ready. */
export async function recovered(mesh: TestMesh, killed: readonly number[]): Promise<void> {
  await until(
    async () => {
      const { ready, redis, actors } = await mesh.status();
      const current = new Set([redis.pid, ...actors.map((actor) => actor.pid)]);
      return ready && killed.every((pid) => !current.has(pid));
    },
    { what: 'everything to be ready again', timeoutMs: 60_000 },
  );
}

const probe = (name: string): string => `
apiVersion: v1
kind: ServiceAccount
metadata: { name: ${name}, namespace: demo }
---
apiVersion: v1
kind: Pod
metadata: { name: ${name}, namespace: demo, labels: { app: ${name} } }
spec:
  nodeName: node-2
  serviceAccountName: ${name}
  containers: [{ name: server, image: weft/sample }]
`;

/** A policy that denies connections from the service account `client`. */
export const denyClient = (app: string): string => `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: no-client-at-${app}, namespace: demo }
spec:
  selector: { matchLabels: { app: ${app} } }
  action: DENY
  rules:
    - from: [{ source: { principals: [cluster.local/ns/demo/sa/client] } }]
`;

/** The kinds of work that show that the actors work again. */
export type Work = 'pods' | 'policies';

/**
 * Checks that the actors work again. `pods`: a new pod with a new identity is enrolled, gets its certificate and
 * answers over HBONE.
 * `policies`: a new policy for the pod `db` takes effect, and so does its removal.
 */
export async function worksAgain(
  t: ExecutionContext,
  mesh: TestMesh,
  ...work: readonly Work[]
): Promise<void> {
  if (work.includes('pods')) await takesNewPod(t, mesh);
  if (work.includes('policies')) await takesNewPolicy(t, mesh);
}

async function takesNewPod(t: ExecutionContext, mesh: TestMesh): Promise<void> {
  const name = `new-${randomBytes(3).toString('hex')}`;
  t.is((await mesh.apply(probe(name))).code, 0);
  const pod = await until(() => enrolledPod(mesh, name), {
    what: 'a new pod to be enrolled',
    timeoutMs: TAKES_EFFECT_MS,
  });
  await until(() => hasCertificate(mesh, name), {
    what: 'a new identity to get a certificate',
    timeoutMs: TAKES_EFFECT_MS,
  });
  await until(async () => (await fetchFromClient(mesh, pod.ip)).stdout.includes(name), {
    what: 'a new pod to answer',
    timeoutMs: TAKES_EFFECT_MS,
  });
  t.is((await mesh.delete(probe(name))).code, 0);
}

async function takesNewPolicy(t: ExecutionContext, mesh: TestMesh): Promise<void> {
  const { ip } = await mesh.pod('demo', 'db');
  t.is((await fetchFromClient(mesh, ip)).code, 0);
  t.is((await mesh.apply(denyClient('db'))).code, 0);
  await until(async () => (await fetchFromClient(mesh, ip)).code !== 0, {
    what: 'a new policy to be enforced',
    timeoutMs: TAKES_EFFECT_MS,
  });
  t.is((await mesh.delete(denyClient('db'))).code, 0);
  await until(async () => (await fetchFromClient(mesh, ip)).code === 0, {
    what: 'the removal of a policy to take effect',
    timeoutMs: TAKES_EFFECT_MS,
  });
}

function fetchFromClient(mesh: TestMesh, ip: string): Promise<Outcome> {
  const url = `http://${ip}:8080/`;
  return mesh.inNetns('demo-client', 'curl', '-sS', '--max-time', '60', url).exit;
}

async function enrolledPod(mesh: TestMesh, name: string): Promise<PodLine | null> {
  const pod = (await mesh.pods()).find((line) => line.name === name);
  return pod?.enrolled === true ? pod : null;
}

async function hasCertificate(mesh: TestMesh, serviceAccount: string): Promise<boolean> {
  return (await mesh.certificates()).some(
    (line) => line.identity.endsWith(`/sa/${serviceAccount}`) && line.state === 'Available',
  );
}

/** Ends the load and asserts that no connection failed. Shows the proxies' last log lines when one did. */
export async function undisturbed(t: ExecutionContext, mesh: TestMesh, load: Load): Promise<void> {
  const failures = await load.stop();
  if (failures.length > 0) {
    for (const node of ['node-1', 'node-2']) {
      const lines = await mesh.log('node-proxy', node);
      const told = lines.filter((line) => 'error' in line || line['message'] === 'pod.stopping');
      for (const line of told.slice(-LOGGED_LINES)) t.log(node, JSON.stringify(line));
    }
  }
  t.deepEqual(failures, []);
}
