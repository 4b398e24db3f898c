/** Measures resident memory: per idle connection on each side, and of a node proxy per 1,000 known workloads. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import type { Target } from '../lib/loads.ts';
import type { BenchMesh } from '../lib/mesh.ts';
import { eventually, residentBytes } from '../lib/process.ts';

/** Connections opened before the count begins, so that the cost of a first use is not counted. */
const WARM = 200;

const holder = new URL('../programs/idle.ts', import.meta.url).pathname;

/**
 * Measures the bytes per idle connection in each process that carries it, in the order of `pids`. Each look comes `settleMs` after
 * the connections: garbage of the start that goes between two looks would hide what a connection takes.
 */
export async function idleCost(
  target: Target,
  pids: readonly number[],
  connections: number,
  settleMs: number,
): Promise<readonly number[]> {
  const args = [`--net=${target.from}`, process.execPath, holder, target.host];
  const counts = [WARM, WARM + connections].map(String);
  const child = spawn('nsenter', [...args, String(target.httpPort), ...counts], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const step = async (): Promise<readonly number[]> => {
    const { done } = await lines.next();
    if (done === true) throw new Error('idle connections were closed');
    await wait(settleMs);
    return Promise.all(pids.map(residentBytes));
  };
  try {
    const before = await step();
    child.stdin.write('more\n');
    const after = await step();
    return after.map((bytes, index) => (bytes - (before[index] ?? 0)) / connections);
  } finally {
    child.kill('SIGTERM');
    await closed;
  }
}

/** Measures the bytes of one node proxy per 1,000 known workloads. */
export async function workloadCost(
  mesh: BenchMesh,
  scratch: string,
  count: number,
): Promise<number> {
  const pids = await mesh.pids('node-proxy');
  const before = await Promise.all(pids.map(residentBytes));
  const documents = Array.from({ length: count }, (_, index) =>
    JSON.stringify({
      apiVersion: 'networking.istio.io/v1',
      kind: 'WorkloadEntry',
      metadata: { name: `known-${index}`, namespace: 'bare', labels: { app: `app-${index % 50}` } },
      spec: {
        address: `10.77.${index >> 8}.${index & 255}`,
        serviceAccount: `account-${index % 20}`,
      },
    }),
  );
  const file = join(scratch, 'workloads.yaml');
  await writeFile(file, documents.join('\n---\n'));
  await mesh.weft('apply', '-f', file);
  await eventually('all workloads known', 60_000, async () => {
    const list = await mesh.weft('get', 'workloads', '-o', 'json');
    const known = (JSON.parse(list) as { name: string }[]).filter(({ name }) =>
      name.startsWith('known-'),
    );
    if (known.length < count) throw new Error(`${known.length} known`);
  });
  const after = await Promise.all(pids.map(residentBytes));
  const grown = after.reduce((sum, bytes, index) => sum + bytes - (before[index] ?? 0), 0);
  return ((grown / pids.length) * 1_000) / count;
}
