/**
 * Measures the CNI plugin for pods that start, with a live node agent, beside reference plugins in the same run:
 * `node test/bench/cni-add.ts [--pods N] [--rounds N]`. So many pods start one after another, then all at once.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { createServer } from 'node:https';
import { cniNode, AMBIENT } from '../cni/support/node.ts';
import type { CniNode } from '../cni/support/node.ts';
import { cniPrograms } from '../cni/support/programs.ts';
import { makeServingPair } from '../support/ads-server.ts';
import { downWhenInterrupted } from '../support/interruption.ts';
import { makeScratch } from '../support/leftovers.ts';
import { killed, spawnAgent } from '../support/node-agent-kit.ts';
import type { SiteOwner } from '../support/node-agent-kit.ts';
import { ServingProxy } from '../support/serving-proxy.ts';
import { until } from '../support/until.ts';
import { median } from './lib/goal.ts';
import { output, processorSeconds } from './lib/process.ts';

const SOURCE = new URL('programs/cni-storm.c', import.meta.url).pathname;
const LIST = '02-weft-cni.conflist';
/** Milliseconds that an ADD of a pod outside the mesh may take. */
const GOAL_MS = 10;
/** The address that a plugin before ours gave the pod. */
const ADDRESS = '10.77.0.5/16';

const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '50' },
    rounds: { type: 'string', default: '10' },
  },
});
const podCount = Number(values.pods);
const rounds = Number(values.rounds);

interface Pod {
  readonly name: string;
  readonly netns: string;
}

/** A plugin as a runtime calls it. */
interface Plugin {
  readonly program: string;
  readonly config: object;
  /** The namespace of the plugin's node; this process's own when absent. */
  readonly netns?: string;
  /** True for a plugin whose ADD must be undone before the next one. */
  readonly undone?: boolean;
}

/** Times of one run of a plugin, milliseconds. */
interface Run {
  readonly wall: number;
  readonly processor: number;
}

/** A line of the table, milliseconds. */
interface Row {
  readonly label: string;
  readonly alone: readonly Run[];
  readonly together: readonly Run[];
  /** Processor time of the agent for each ADD; null where it is not asked. */
  readonly agent: number | null;
}

/** Starts plugins by the C program. */
class Storm {
  readonly #program: string;
  readonly #dir: string;
  readonly #binDir: string;

  constructor(paths: { program: string; dir: string; binDir: string }) {
    this.#program = paths.program;
    this.#dir = paths.dir;
    this.#binDir = paths.binDir;
  }

  async run(
    plugin: Plugin,
    command: 'ADD' | 'DEL',
    pods: readonly Pod[],
    atOnce: number,
  ): Promise<readonly Run[]> {
    const file = join(this.#dir, 'config');
    const said = join(this.#dir, 'output');
    await writeFile(file, JSON.stringify(plugin.config));
    await writeFile(said, '');
    const child = spawn(
      'nsenter',
      [
        `--net=${plugin.netns ?? '/proc/self/ns/net'}`,
        this.#program,
        plugin.program,
        command,
        file,
        this.#binDir,
        String(atOnce),
        said,
      ],
      { stdio: ['pipe', 'pipe', 'inherit'] },
    );
    child.stdin.end(pods.map(({ name, netns }) => `${name} ${netns}\n`).join(''));
    const [told, [status]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
    if (status !== 0) throw new Error(`cni-storm ended with ${String(status)}`);
    const answers = await readFile(said, 'utf8');
    return told
      .trim()
      .split('\n')
      .map((line) => {
        const [wall = 0, user = 0, system = 0, code = -1] = line.split(' ').map(Number);
        if (code !== 0) {
          throw new Error(
            `${plugin.program} ${command} ended with ${code}: ${answers.slice(-500)}`,
          );
        }
        return { wall: wall / 1_000, processor: (user + system) / 1_000 };
      });
  }
}

/** Answers as an API server that has these pods outside of the mesh, and gives the plugin's helper its token. */
async function apiServer(owner: SiteOwner, dir: string): Promise<string> {
  const rootPath = join(dir, 'api-root.pem');
  const { chainPem, keyPem } = await makeServingPair(rootPath, []);
  const server = createServer({ cert: chainPem, key: keyPem }, (request, response) => {
    const url = request.url ?? '';
    const token = { spec: { expirationSeconds: 3_600 }, status: { token: 't' } };
    const facts = { metadata: { labels: {}, annotations: {} } };
    const pod = /\/namespaces\/[^/]+\/pods\//.test(url) ? { spec: {} } : {};
    response.end(JSON.stringify(url.endsWith('/token') ? token : { ...facts, ...pod }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  owner.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string')
    throw new Error('the API server has no port');
  const ca = (await readFile(rootPath)).toString('base64');
  const cluster = {
    server: `https://127.0.0.1:${address.port}`,
    'certificate-authority-data': ca,
  };
  const kubeconfig = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster }],
    users: [{ name: 'u', user: { token: 't' } }],
    contexts: [{ name: 'c', context: { cluster: 'c', user: 'u', namespace: 'weft-system' } }],
    'current-context': 'c',
  };
  const file = join(dir, 'kubeconfig');
  await writeFile(file, JSON.stringify(kubeconfig));
  return file;
}

class Bench {
  readonly #node: CniNode;
  readonly #storm: Storm;
  readonly #rows: Row[] = [];
  agent: ChildProcess;

  constructor(node: CniNode, storm: Storm, agent: ChildProcess) {
    this.#node = node;
    this.#storm = storm;
    this.agent = agent;
  }

  get rows(): readonly Row[] {
    return this.#rows;
  }

  /** Measures the ADD of these pods, in turns one after another and all at once. */
  async measure(
    label: string,
    plugin: Plugin,
    pods: readonly Pod[],
    asked: boolean,
  ): Promise<void> {
    process.stderr.write(`bench: ${label}\n`);
    const alone: Run[] = [];
    const together: Run[] = [];
    const before = asked ? await this.#agentSeconds() : 0;
    for (let round = 0; round < rounds; round += 1) {
      for (const [runs, atOnce] of [
        [alone, 1],
        [together, pods.length],
      ] as const) {
        runs.push(...(await this.#storm.run(plugin, 'ADD', pods, atOnce)));
        if (plugin.undone === true) await this.#storm.run(plugin, 'DEL', pods, atOnce);
      }
    }
    const adds = alone.length + together.length;
    const agent = asked ? (1_000 * ((await this.#agentSeconds()) - before)) / adds : null;
    this.#rows.push({ label, alone, together, agent });
  }

  /** Measures the first ADD of pods of the mesh: half of them one after another, the others at once. */
  async enrol(label: string, plugin: Plugin): Promise<readonly Pod[]> {
    process.stderr.write(`bench: ${label}\n`);
    const add = async (names: readonly string[], atOnce: number): Promise<[Pod[], Run[]]> => {
      const pods = await this.pods(names, AMBIENT);
      return [pods, [...(await this.#storm.run(plugin, 'ADD', pods, atOnce))]];
    };
    const before = await this.#agentSeconds();
    const alone: Run[] = [];
    const all: Pod[] = [];
    const names = Array.from({ length: podCount }, (_, index) => `m${index}`);
    const half = Math.ceil(names.length / 2);
    for (const name of names.slice(0, half)) {
      const [pods, runs] = await add([name], 1);
      all.push(...pods);
      alone.push(...runs);
    }
    const [pods, together] = await add(
      names.map((name) => `${name}x`),
      podCount,
    );
    all.push(...pods);
    const agent = (1_000 * ((await this.#agentSeconds()) - before)) / all.length;
    this.#rows.push({ label, alone, together, agent });
    return all;
  }

  pods(names: readonly string[], labels: Readonly<Record<string, string>> = {}): Promise<Pod[]> {
    return Promise.all(
      names.map(async (name) => {
        const netns = await this.#node.pod(name, labels);
        // As the plugins before ours leave it.
        await netns.exec('ip', 'link', 'add', 'pod0', 'type', 'veth');
        await netns.exec('ip', 'address', 'add', ADDRESS, 'dev', 'pod0');
        return { name: `demo/${name}`, netns: netns.path };
      }),
    );
  }

  #agentSeconds(): Promise<number> {
    return processorSeconds([this.agent.pid ?? 0]);
  }
}

function render(rows: readonly Row[]): string {
  const walls = (runs: readonly Run[]): number[] => runs.map(({ wall }) => wall);
  const floor = median(walls(rows[0]?.alone ?? []));
  const crowd = median(walls(rows[0]?.together ?? []));
  const own = (runs: readonly Run[]): string =>
    (runs.reduce((sum, { processor }) => sum + processor, 0) / runs.length).toFixed(2);
  const cells = rows.map(({ label, alone, together, agent }) => [
    label,
    median(walls(alone)).toFixed(2),
    (median(walls(alone)) / floor).toFixed(2),
    median(walls(together)).toFixed(2),
    Math.max(...walls(together)).toFixed(2),
    (median(walls(together)) / crowd).toFixed(2),
    own(alone),
    own(together),
    agent?.toFixed(2) ?? '-',
  ]);
  const header = [
    '',
    'alone, ms',
    'ratio',
    'at once, ms',
    'longest',
    'ratio',
    'plugin, alone',
    'plugin, at once',
    'agent',
  ];
  const table = [header, ...cells];
  const widths = header.map((_, column) =>
    Math.max(...table.map((row) => row[column]?.length ?? 0)),
  );
  return table
    .map((row) =>
      row
        .map((cell, column) =>
          (column === 0 ? cell.padEnd : cell.padStart).call(cell, widths[column] ?? 0),
        )
        .join('  '),
    )
    .join('\n');
}

async function main(): Promise<void> {
  const programs = await cniPrograms();
  if ('missing' in programs) throw new Error(programs.missing);
  await using made = new AsyncDisposableStack();
  const owner: SiteOwner = {
    teardown: (end) => made.defer(async () => end()),
    log: (line) => void process.stderr.write(`${line}\n`),
  };
  const callOff = downWhenInterrupted(() => made.disposeAsync());
  made.defer(callOff);
  const dir = await makeScratch('cni-add');
  owner.teardown(() => rm(dir, { recursive: true }));
  const program = join(dir, 'cni-storm');
  await output('gcc', ['-O2', '-o', program, SOURCE]);
  const kubeconfig = await apiServer(owner, dir);
  const node = await cniNode(owner, programs);
  const { WEFT_NODE_AGENT_CNI_BIN_DIR: binDir = '', MOUNTED_CNI_NET_DIR: netDir = '' } =
    node.site.environment;
  const proxy = new ServingProxy(node.site.socket);
  owner.teardown(() => proxy.stop());
  proxy.client.start();
  const site = { ...node.site, environment: { ...node.site.environment, KUBECONFIG: kubeconfig } };
  const agent = spawnAgent(owner, site);
  await node.installed();
  await until(() => proxy.told.includes('session'), { what: 'the proxy is connected' });

  const storm = new Storm({ program, dir, binDir });
  const bench = new Bench(node, storm, agent);
  const list = JSON.parse(await readFile(join(netDir, LIST), 'utf8')) as {
    readonly plugins: readonly Readonly<Record<string, unknown>>[];
  };
  const entry = list.plugins.find(({ type }) => type === 'weft-cni');
  const prevResult = {
    cniVersion: '1.0.0',
    interfaces: [{ name: 'eth0', sandbox: '/run/netns/x' }],
    ips: [{ address: ADDRESS, interface: 0 }],
  };
  const common = { cniVersion: '1.0.0', name: 'net', prevResult };
  const weft: Plugin = { program: join(binDir, 'weft-cni'), config: { ...common, ...entry } };
  const portmap: Plugin = {
    program: programs.portmap,
    config: { ...common, type: 'portmap', capabilities: { portMappings: true } },
  };
  const loopback: Plugin = {
    program: programs.loopback,
    config: { ...common, type: 'loopback' },
  };
  const ipam = { type: 'host-local', subnet: '10.78.0.0/16', dataDir: join(dir, 'ipam') };
  const bridge: Plugin = {
    program: programs.bridge,
    config: {
      cniVersion: '1.0.0',
      name: 'peer',
      type: 'bridge',
      bridge: 'peer0',
      isGateway: true,
      ipam,
    },
    netns: node.host.path,
    undone: true,
  };
  const names = Array.from({ length: podCount }, (_, index) => `p${index}`);
  const outside = await bench.pods(names);
  const exempt = outside.map(({ name, netns }) => ({
    name: name.replace('demo/', 'kube-system/'),
    netns,
  }));
  await bench.measure('portmap without a mapping', portmap, outside, false);
  await bench.measure('loopback', loopback, outside, false);
  await bench.measure('bridge with host-local', bridge, outside, false);
  await bench.measure('weft-cni, excluded namespace: no socket', weft, exempt, false);
  await bench.measure('weft-cni, outside the mesh', weft, outside, true);
  const inside = await bench.enrol('weft-cni, of the mesh, new', weft);
  await bench.measure(
    'weft-cni, of the mesh, enrolled before',
    weft,
    inside.slice(0, podCount),
    true,
  );
  await killed(agent);
  await bench.measure('weft-cni, excluded namespace, agent down', weft, exempt, false);
  await bench.measure('weft-cni, outside the mesh, agent down', weft, outside, false);

  process.stdout.write(
    `${podCount} pods one after another, then all at once, ${rounds} rounds; medians; processor milliseconds of the plugin and, for\n` +
      `each ADD, of the agent. Ratios to the first line. The goal for a pod outside the mesh is ${GOAL_MS} ms.\n\n` +
      `${render(bench.rows)}\n`,
  );
}

await main();
