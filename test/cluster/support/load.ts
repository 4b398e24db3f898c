/** A load from a pod: a new connection for each of many requests, and one connection that is kept. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { TestCluster } from './cluster.ts';
import type { ClusterPod } from './pods.ts';

const SCRIPT = `
const { connect } = require('node:net');
const { hostname } = new URL(process.argv[1]);
const request = 'GET / HTTP/1.1\\r\\nHost: ' + hostname + '\\r\\n\\r\\n';
const failures = [];
const counts = { fresh: 0, kept: 0 };
let ended = false;
const failed = (what, error) => {
  if (!ended) failures.push(new Date().toISOString() + ' ' + what + ': ' + error);
};
const fresh = () => {
  const socket = connect(80, hostname, () => socket.write(request));
  socket.setTimeout(10_000, () => socket.destroy(new Error('no answer')));
  let answered = false;
  socket.on('error', (error) => failed('new connection', error.message));
  socket.on('data', () => { answered = true; counts.fresh += 1; socket.end(); });
  socket.on('close', (hadError) => {
    if (!answered && !hadError) failed('new connection', 'closed without an answer');
    if (!ended) setTimeout(fresh, 30);
  });
};
fresh();
const kept = connect(80, hostname, () => kept.write(request));
kept.on('error', (error) => failed('kept connection', error.message));
kept.on('data', () => { counts.kept += 1; setTimeout(() => kept.write(request), 100); });
kept.on('close', () => failed('kept connection', 'closed'));
process.stdin.resume().on('end', () => {
  ended = true;
  kept.destroy();
  console.log(JSON.stringify({ ...counts, failures }));
  process.exit(0);
});
`;

/** The result of a load. */
export interface LoadResult {
  /** Answers over new connections. */
  readonly fresh: number;
  /** Answers over the kept connection. */
  readonly kept: number;
  readonly failures: readonly string[];
}

/** Puts a load on a URL from a pod while `body` runs. */
export async function loadWhile(
  cluster: TestCluster,
  from: { readonly namespace: string; readonly pod: ClusterPod },
  url: string,
  body: () => Promise<void>,
): Promise<LoadResult> {
  const node = ['/opt/weft/node_modules/.bin/node', '-e', SCRIPT, url];
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
