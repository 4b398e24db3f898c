/** Measures the compact profile: every actor of a node in one idle process (`weft run node`). */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { median } from '../lib/goal.ts';
import { BenchMesh } from '../lib/mesh.ts';
import { eventually, memoryOf, output, residentBytes } from '../lib/process.ts';
import type { Memory } from '../lib/process.ts';

const weft = new URL('../../../services/cli/weft', import.meta.url).pathname;
const manifests = new URL('../manifests/compact', import.meta.url).pathname;
const NODE_ACTORS = ['cert-fetcher', 'node-agent', 'node-proxy'] as const;
const SHARED_ACTORS = ['xds-ingester', 'policy-evaluator'] as const;
/** The Redis user of the process. */
const NODE_USER = 'node';
/** Pods of the manifests. */
const PODS = 3;
/** The process counts itself as idle by then, also after the added pods, and has released unused memory, also where it waited for a busy machine. */
const SETTLE_MS = 120_000;
/** The number of samples after that. Resident pages of the binary vary by megabytes while V8 compiles. */
const LOOKS = 10;
const LOOK_EVERY_MS = 10_000;

/** Memory of the process with three pods, and resident bytes of each further pod. */
export interface CompactCost {
  readonly memory: Memory;
  readonly resident: number;
  readonly perPod: number;
}

/** Brings up a mesh of one node whose actors share a process, and adds `more` pods to it. */
export async function compactCost(scratch: string, more: number): Promise<CompactCost> {
  const mesh = new BenchMesh();
  const external = [...SHARED_ACTORS, ...NODE_ACTORS.map((actor) => `node-1/${actor}`)].join(',');
  await mesh.weft(
    'up',
    '--detach',
    '--nodes',
    '1',
    '--external',
    external,
    '--manifests',
    manifests,
  );
  try {
    const child = spawn('nsenter', [`--net=${mesh.node('node-1')}`, weft, 'run', 'node'], {
      env: await nodeEnvironment(mesh),
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const closed = once(child, 'close');
    const pid = child.pid ?? 0;
    try {
      await enrolled(mesh, PODS);
      const resident = await settled(pid);
      const memory = await memoryOf(pid);
      const file = join(scratch, 'pods.yaml');
      await writeFile(file, Array.from({ length: more }, (_, index) => pod(index)).join('\n---\n'));
      await mesh.weft('apply', '-f', file);
      await enrolled(mesh, PODS + more);
      return { memory, resident, perPod: ((await settled(pid)) - resident) / more };
    } finally {
      child.kill('SIGTERM');
      await closed;
    }
  } finally {
    await mesh.down();
  }
}

/** Returns the median resident memory of an idle process over a hundred seconds. */
async function settled(pid: number): Promise<number> {
  await wait(SETTLE_MS);
  const sizes: number[] = [];
  for (let look = 0; look < LOOKS; look += 1) {
    sizes.push(await residentBytes(pid));
    await wait(LOOK_EVERY_MS);
  }
  return median(sizes);
}

/**
 * Makes the environment of all roles of the node. On a node with its own Redis one user serves all roles; here the user is
 * added to the mesh's Redis, which loads it at a restart.
 */
async function nodeEnvironment(mesh: BenchMesh): Promise<Record<string, string>> {
  const roles = [...SHARED_ACTORS, ...NODE_ACTORS.map((actor) => `node-1/${actor}`)];
  const environment: Record<string, string> = {};
  for (const role of roles) {
    for (const line of (await mesh.weft('env', role)).split('\n')) {
      const match = /^export (\w+)='(.*)'$/.exec(line);
      if (match?.[1] !== undefined) environment[match[1]] = match[2] ?? '';
    }
  }
  const redis = environment['REDIS_URL']?.replace(/^unix:\/\//, '') ?? '';
  await appendFile(join(dirname(redis), 'users.acl'), `user ${NODE_USER} on nopass ~* &* +@all\n`);
  const { redis: server } = await mesh.status();
  process.kill(server.pid, 'SIGKILL');
  const asUser = ['-s', redis, '--no-auth-warning', '--user', NODE_USER, '--pass', 'any'];
  await eventually('Redis to be back', 30_000, async () => {
    const answer = await output('redis-cli', [...asUser, 'ping']);
    if (!answer.startsWith('PONG')) throw new Error(answer);
  });
  return {
    ...environment,
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    REDIS_USERNAME: NODE_USER,
    // The smallest number of threads, as on a node with few spare cores.
    ZTUNNEL_WORKER_THREADS: '1',
    RUST_LOG: 'error',
  };
}

async function enrolled(mesh: BenchMesh, count: number): Promise<void> {
  await eventually(`${count} pods enrolled`, 60_000, async () => {
    const pods = JSON.parse(await mesh.weft('get', 'pods', '-o', 'json')) as {
      enrolled: boolean;
    }[];
    const ready = pods.filter((line) => line.enrolled).length;
    if (ready < count) throw new Error(`${ready} enrolled`);
  });
}

function pod(index: number): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `more-${index}`, namespace: 'bench' },
    spec: {
      nodeName: 'node-1',
      serviceAccountName: 'idle',
      containers: [{ name: 'idle', image: 'local', command: ['sleep', 'infinity'] }],
    },
  });
}
