/**
 * How long a policy takes from its acceptance until it ends a live connection between two nodes, in a local mesh:
 * `node test/bench/policy-change.ts [--rounds N]`. Changes are gathered for a quiet time of 100 ms, which is a part of it.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { processEnvironment } from '../../lib/config/env.ts';
import { meshPaths } from '../../services/local-mesh/mesh-paths.ts';
import { ApiClient } from '../support/control-plane-kit.ts';
import { BenchMesh } from './lib/mesh.ts';
import type { BenchPod } from './lib/mesh.ts';
import { eventually, serve } from './lib/process.ts';

const PORT = 7_100;
const QUIET_MS = 100;
const OPEN_WITHIN_MS = 30_000;

const DENY = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: no-load, namespace: bench }
spec:
  action: DENY
  rules:
    - from: [{ source: { principals: [cluster.local/ns/bench/sa/load] } }]
`;

/** Sends a byte to each client, and holds the connection. */
const SERVER = `require('net').createServer((socket) => { socket.on('error', () => {}); socket.write('x'); socket.resume(); }).listen(${PORT})`;
/** Prints \`open\` with the first byte, and the time of the end. */
const CLIENT = `const socket = require('net').connect(${PORT}, process.argv[1]);
socket.on('error', () => {});
socket.once('data', () => console.log('open'));
socket.on('close', () => console.log(performance.timeOrigin + performance.now()));`;

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '10' } } });

/** A connection from one pod to another. */
class Live {
  readonly #lines: AsyncIterator<string>;

  constructor(from: BenchPod, to: BenchPod) {
    const { stdout } = spawn(
      'nsenter',
      [`--net=${from.netns}`, process.execPath, '-e', CLIENT, to.ip],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  /** Resolves with the next line. */
  async next(): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error('the connection told nothing');
    return value;
  }
}

/** Opens one once the mesh lets it pass. */
function open(from: BenchPod, to: BenchPod): Promise<Live> {
  return eventually('the connection', OPEN_WITHIN_MS, async () => {
    const live = new Live(from, to);
    const line = await live.next();
    if (line !== 'open') throw new Error('the connection was refused');
    return live;
  });
}

const mesh = new BenchMesh();
await mesh.up();
try {
  const api = new ApiClient(meshPaths(mesh.name, processEnvironment()).controlSocket);
  const [from, to] = [await mesh.pod('bench', 'load'), await mesh.pod('bench', 'far')];
  const server = serve(to.netns, process.execPath, '-e', SERVER);
  const times: number[] = [];
  for (let round = 0; round < Number(values.rounds); round += 1) {
    const live = await open(from, to);
    await api.apply(DENY);
    const accepted = performance.timeOrigin + performance.now();
    times.push(Number(await live.next()) - accepted - QUIET_MS);
    await api.manifests('delete', DENY);
  }
  await server.stop();
  times.sort((left, right) => left - right);
  const at = (part: number): string => (times[Math.ceil(part * times.length) - 1] ?? 0).toFixed(0);
  process.stdout.write(
    `policy accepted → live connection ended, after the quiet time of ${QUIET_MS} ms, ${times.length} rounds: ` +
      `p50 ${at(0.5)} ms, p90 ${at(0.9)} ms, max ${at(1)} ms\n`,
  );
} finally {
  await mesh.down();
}
