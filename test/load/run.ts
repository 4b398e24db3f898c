/**
 * Measures load by size and worker count: `npm run load -- --nodes N --pods N --proxies N,… --threads N,… --connections N --rate R
 * --duration S [--compose]` prints a table with a column for each number of proxies and of listener threads, and draws the curves. Ends
 * with 1 when a connection was refused, unanswered or lost.
 */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { parseArgs, promisify } from 'node:util';
import { COMPOSE_NODES, MAX_COMPOSE_PODS, composeMesh } from './compose-mesh.ts';
import { localMesh } from './mesh.ts';
import { measurePoint } from './point.ts';
import type { LoadOptions, Point } from './point.ts';
import { picture } from './picture.ts';
import { table } from './report.ts';

const run = promisify(execFile);
/** A connection costs a descriptor in each process that carries or makes it. */
const OPEN_FILES = 262_144;
/** A proxy needs two descriptors for each connection: the pod's, and one of a tunnel or application. */
const FILES_OF_A_CONNECTION = 2;
/** Descriptors for the listeners of a pod and its share of tunnels. */
const FILES_BESIDES = 10;

const { values } = parseArgs({
  options: {
    nodes: { type: 'string', default: '2' },
    pods: { type: 'string', default: '10' },
    proxies: { type: 'string', default: '1' },
    threads: { type: 'string', default: '1,2,4' },
    connections: { type: 'string', default: '1000' },
    rate: { type: 'string', default: '300' },
    duration: { type: 'string', default: '10' },
    svg: { type: 'string', default: 'load.svg' },
    output: { type: 'string', short: 'o', default: 'table' },
    compose: { type: 'boolean', default: false },
  },
});

const say = (text: string): void => void process.stderr.write(`load: ${text}\n`);

function whole(name: string, text: string, least: number): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= least) return value;
  process.stderr.write(
    `load: --${name} must be a whole number of at least ${least}, got ${text}\n`,
  );
  process.exit(2);
}

/** Parses a list of numbers; several make a curve. */
function several(name: string, text: string): readonly number[] {
  return text.split(',').map((part) => whole(name, part.trim(), 1));
}

const options: Omit<LoadOptions, 'proxies'> = {
  nodes: whole('nodes', values.nodes, 1),
  pods: whole('pods', values.pods, 1),
  connections: whole('connections', values.connections, 0),
  rate: whole('rate', values.rate, 1),
  durationSeconds: whole('duration', values.duration, 1),
};
if (values.compose && (options.nodes !== COMPOSE_NODES || options.pods > MAX_COMPOSE_PODS)) {
  process.stderr.write(
    `load: in containers there are ${COMPOSE_NODES} nodes with at most ${MAX_COMPOSE_PODS} pods each\n`,
  );
  process.exit(2);
}
const proxies = several('proxies', values.proxies);
const threads = several('threads', values.threads);

/** Raises the limit of open files. The mesh's processes and the load's own inherit it. */
async function raiseLimits(): Promise<void> {
  const self = ['--pid', String(process.pid)];
  await run('prlimit', [...self, `--nofile=${OPEN_FILES}:${OPEN_FILES}`]).catch(() => undefined);
  const { stdout } = await run('prlimit', [...self, '--nofile', '--noheadings', '-o', 'HARD']);
  const limit = stdout.trim() === 'unlimited' ? OPEN_FILES : Number(stdout);
  const each = Math.ceil(options.connections / Math.min(...proxies));
  const needed = FILES_OF_A_CONNECTION * each + FILES_BESIDES * options.pods;
  if (needed <= limit) return;
  say(
    `a proxy may open ${limit} files and will need ${needed}, and the limit cannot be raised here: ` +
      'connections will be refused. Fewer connections or more --proxies fit',
  );
}

await raiseLimits();
const points: Point[] = [];
const bringUp = values.compose ? composeMesh : localMesh;
for (const each of proxies) {
  for (const count of threads) {
    say(`${count} listener threads in each of ${each} proxies a node`);
    points.push(await measurePoint({ ...options, proxies: each }, count, bringUp, say));
  }
}
const day = new Date().toISOString().slice(0, 10);
await writeFile(values.svg, picture(points, { options, cores: availableParallelism(), day }));
process.stdout.write(
  values.output === 'json'
    ? `${JSON.stringify({ options, points }, null, 2)}\n`
    : table(options, points),
);
say(`picture in ${values.svg}`);
for (const { threads: count, proxies: each, reasons } of points) {
  for (const reason of reasons) say(`${count} × ${each}: ${reason}`);
}
if (points.some(({ refused, lost }) => refused > 0 || lost > 0)) process.exitCode = 1;
