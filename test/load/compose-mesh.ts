/** Runs the mesh of docker-compose.yml, with pods for the load, on the Docker engine that `docker` uses. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { processEnvironment } from '../../lib/config/env.ts';
import { until } from '../support/until.ts';
import type { LoadMesh, MeshSize, PlacedPod } from './mesh.ts';

const run = promisify(execFile);
const ROOT = new URL('../..', import.meta.url).pathname;
const PROJECT = 'weftload';
/** The nodes of docker-compose.yml. */
export const COMPOSE_NODES = 2;
/** The network has 126 addresses for containers without a fixed one. */
export const MAX_COMPOSE_PODS = 50;
const READY_MS = 300_000;
const OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024;

/** The namespace must exist for pods of containers without a manifest. */
const NAMESPACE = JSON.stringify({
  apiVersion: 'v1',
  kind: 'Namespace',
  metadata: { name: 'load', labels: { 'istio.io/dataplane-mode': 'ambient' } },
});

interface PodLine {
  readonly namespace: string;
  readonly node: string;
  readonly ip: string;
  readonly netns: string;
  readonly enrolled: boolean;
}

/** Brings the mesh up; rejects when it does not become ready. */
export async function composeMesh(size: MeshSize): Promise<LoadMesh> {
  const [program = '', ...base] = await composeProgram();
  const folder = await mkdtemp(join(tmpdir(), 'weft-load-'));
  const file = join(folder, 'load.yml');
  const services = loadServices(size);
  await writeFile(file, JSON.stringify({ services }));
  const files = ['-f', join(ROOT, 'docker-compose.yml'), '-f', file];
  const compose = async (...args: readonly string[]): Promise<string> => {
    const all = [...base, '-p', PROJECT, ...files, ...args];
    const env = { ...processEnvironment(), COMPOSE_HTTP_TIMEOUT: '300' };
    return (await run(program, all, { cwd: ROOT, maxBuffer: OUTPUT_LIMIT_BYTES, env })).stdout;
  };
  const inMesh = async (args: readonly string[], input = ''): Promise<string> => {
    const [container = ''] = (await compose('ps', '-q', 'supervisor')).split('\n');
    const running = run('docker', ['exec', '-i', container, 'weft', ...args]);
    running.child.stdin?.end(input);
    return (await running).stdout;
  };
  const weft = async <T>(...args: readonly string[]): Promise<T> =>
    JSON.parse(await inMesh([...args, '-o', 'json'])) as T;
  const down = async (): Promise<void> => {
    await compose('down', '--volumes', '--timeout', '5');
    await rm(folder, { recursive: true });
  };
  const pods = async (): Promise<readonly (PlacedPod & { enrolled: boolean })[]> =>
    (await weft<readonly PodLine[]>('get', 'pods'))
      .filter(({ namespace }) => namespace === 'load')
      .map(({ node, ip, netns, enrolled }) => ({ node, ip, netns, enrolled }));
  try {
    const scale = nodeNames().flatMap((node) => ['--scale', `${node}-proxy=${size.proxies}`]);
    // Starts no sample pods; actors start as dependencies of the services, or by name.
    await compose('up', '--detach', ...scale, ...ACTORS, ...Object.keys(services));
    await until(() => inMesh(['apply', '-f', '-'], NAMESPACE).then(() => true), {
      what: 'the control plane to take the namespace',
      timeoutMs: READY_MS,
    });
    await until(
      async () => {
        const ready = (await weft<{ ready: boolean }>('status')).ready;
        const enrolled = (await pods()).filter((pod) => pod.enrolled).length;
        return ready && enrolled === COMPOSE_NODES * size.pods;
      },
      { what: 'the mesh of containers to be ready', timeoutMs: READY_MS },
    );
  } catch (error) {
    await down();
    throw error;
  }
  return { pods, proxyPids: () => proxyPids(weft), down };
}

const ACTORS = [
  'ca',
  'control-plane',
  'xds-ingester',
  'policy-evaluator',
  'supervisor',
  ...nodeNames().flatMap((node) => ['agent', 'fetcher', 'proxy'].map((part) => `${node}-${part}`)),
];

function nodeNames(): readonly string[] {
  return Array.from({ length: COMPOSE_NODES }, (_, index) => `node-${index + 1}`);
}

/** Finds Compose: v2 as `docker compose`, else 1.29. */
async function composeProgram(): Promise<readonly string[]> {
  try {
    await run('docker', ['compose', 'version']);
    return ['docker', 'compose'];
  } catch {
    return ['docker-compose'];
  }
}

/** Makes the services that add to or replace those of docker-compose.yml. */
export function loadServices({ pods, threads }: MeshSize): Readonly<Record<string, unknown>> {
  const environment = { ZTUNNEL_WORKER_THREADS: String(threads) };
  const proxies = nodeNames().map((node) => [`${node}-proxy`, { environment }]);
  const all = nodeNames().flatMap((node, place) =>
    Array.from({ length: pods }, (_, index) => {
      const name = `load-${place + 1}-${index + 1}`;
      return [name, loadPod(node, name)];
    }),
  );
  return Object.fromEntries([...proxies, ...all]) as Record<string, unknown>;
}

function loadPod(node: string, name: string): unknown {
  return {
    image: 'weft',
    init: true,
    cap_drop: ['ALL'],
    security_opt: ['no-new-privileges:true'],
    read_only: true,
    entrypoint: ['sleep'],
    command: ['infinity'],
    networks: ['link'],
    depends_on: { supervisor: { condition: 'service_started' } },
    labels: {
      'weft.io/pod': `load/${name}`,
      'weft.io/node': node,
      'weft.io/service-account': 'load',
      'istio.io/dataplane-mode': 'ambient',
    },
  };
}

/** Finds the proxy processes themselves; the engine reports only their init process. */
async function proxyPids(
  weft: <T>(...args: readonly string[]) => Promise<T>,
): Promise<readonly number[]> {
  const { actors } = await weft<{ actors: { name: string; pid: number }[] }>('status');
  const firsts = actors.filter(({ name }) => name === 'node-proxy').map(({ pid }) => pid);
  const children = await Promise.all(
    firsts.map((pid) => readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')),
  );
  return children.flatMap((list, index) => {
    const own = list.split(' ').filter(Boolean).map(Number);
    return own.length > 0 ? own : [firsts[index] ?? 0];
  });
}
