/** A load from a pod: a new connection for each of many requests, and connections that are kept from when they were opened. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { TestCluster } from './cluster.ts';
import type { ClusterPod } from './pods.ts';

/** Kept connections: one more after each of these times, up to so many. */
const KEEP_EVERY_MS = 10_000;
const MAX_KEPT = 20;
const NONE_KEPT = 0;

const SCRIPT = `
const { connect } = require('node:net');
const { hostname, port } = new URL(process.argv[1]);
const maxKept = Number(process.argv[2]);
// Connections to the other family begin when this one is refused, and not because the machine is busy.
const to = { host: hostname, port: Number(port || 80), autoSelectFamilyAttemptTimeout: 10_000 };
const request = 'GET / HTTP/1.1\\r\\nHost: ' + hostname + '\\r\\n\\r\\n';
const failures = [];
const counts = { fresh: 0, kept: 0, connections: 0 };
const answeredSince = [];
let ended = false;
const failed = (what, since, error) => {
  if (!ended) failures.push({ what, since, at: new Date().toISOString(), error });
};
const now = () => new Date().toISOString();
const fresh = () => {
  const socket = connect(to, () => socket.write(request));
  socket.setTimeout(30_000, () => socket.destroy(new Error('no answer')));
  let answered = false;
  const since = now();
  socket.on('error', (error) => failed('new connection', since, error.message));
  socket.on('data', () => {
    if (!answered) answeredSince.push(Date.parse(since));
    answered = true;
    counts.fresh += 1;
    socket.end();
  });
  socket.on('close', (hadError) => {
    if (!answered && !hadError) failed('new connection', since, 'closed without an answer');
    if (!ended) setTimeout(fresh, 30);
  });
};
fresh();
const kept = new Set();
const keep = () => {
  if (kept.size >= maxKept) return;
  const socket = connect(to, () => socket.write(request));
  const since = now();
  const lost = (error) => {
    if (kept.delete(socket)) failed('kept connection', since, error);
  };
  kept.add(socket);
  counts.connections += 1;
  socket.setTimeout(60_000, () => socket.destroy(new Error('no answer')));
  socket.on('error', (error) => lost(error.message));
  socket.on('data', () => { counts.kept += 1; setTimeout(() => socket.write(request), 100); });
  socket.on('close', () => lost('closed'));
};
keep();
setInterval(keep, ${KEEP_EVERY_MS});
process.stdin.resume().on('end', () => {
  ended = true;
  for (const socket of kept) socket.destroy();
  // A pipe takes 64 KiB at once.
  process.stdout.write(JSON.stringify({ ...counts, answeredSince, failures }), () => process.exit(0));
});
`;

/** The pod that a load comes from. */
export interface LoadSource {
  readonly namespace: string;
  readonly pod: ClusterPod;
}

/** A connection that failed. Times are in ISO's form. */
export interface LoadFailure {
  readonly what: 'new connection' | 'kept connection';
  /** When it was begun. */
  readonly since: string;
  readonly at: string;
  readonly error: string;
}

/** The result of a load. */
export interface LoadResult {
  /** Answers over new connections. */
  readonly fresh: number;
  /** When each new connection that was answered had begun, in milliseconds since the epoch, in the order of the answers. */
  readonly answeredSince: readonly number[];
  /** Answers over kept connections. */
  readonly kept: number;
  /** Kept connections. */
  readonly connections: number;
  readonly failures: readonly LoadFailure[];
}

/** Puts a load on a URL from a pod while `body` runs. */
export function loadWhile(
  cluster: TestCluster,
  from: LoadSource,
  url: string,
  body: () => Promise<void>,
): Promise<LoadResult> {
  return load(cluster, from, { url, maxKept: MAX_KEPT }, body);
}

/** Opens new connections to a URL from a pod while `body` runs, and keeps none. */
export function newConnectionsWhile(
  cluster: TestCluster,
  from: LoadSource,
  url: string,
  body: () => Promise<void>,
): Promise<LoadResult> {
  return load(cluster, from, { url, maxKept: NONE_KEPT }, body);
}

async function load(
  cluster: TestCluster,
  from: LoadSource,
  { url, maxKept }: { readonly url: string; readonly maxKept: number },
  body: () => Promise<void>,
): Promise<LoadResult> {
  const node = ['/opt/weft/node_modules/.bin/node', '-e', SCRIPT, url, String(maxKept)];
  const words = ['-n', from.namespace, 'exec', '-i', from.pod.metadata.name, '--', ...node];
  const child = spawn(cluster.kubectlPath, [`--kubeconfig=${cluster.kubeconfig}`, ...words], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { HOME: cluster.folder },
  });
  const said = text(child.stdout);
  // It may end before the body has.
  const ended = once(child, 'exit');
  try {
    await body();
  } finally {
    child.stdin.end();
    await ended;
  }
  return JSON.parse(await said) as LoadResult;
}
