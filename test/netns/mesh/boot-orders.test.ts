/**
 * Agent, proxy, Redis and ingester of a node are killed together and started in another order each time, while the node's link is
 * captured: nothing that enrolled pods say to each other leaves in plaintext. Each role is first once and last once; BOOT_ORDERS=all
 * takes all 24 orders, BOOT_SEED other ones.
 */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { sample, shuffledSubarray } from 'fast-check';
import { processEnvironment } from '../../../lib/config/env.ts';
import { askHboneWorkloads, askPods } from '../../../services/local-mesh/mesh-client.ts';
import { meshPaths } from '../../../services/local-mesh/mesh-paths.ts';
import { PLUGIN_PATH, addEnvironment, runPlugin } from '../../cni/support/plugin.ts';
import { BOOT_ARGUMENTS, BOOT_NODE, BOOT_ROLES, BootRoles } from '../../support/boot-roles.ts';
import type { BootRole } from '../../support/boot-roles.ts';
import { captureWhile } from '../../support/capture.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { TestMesh } from '../../support/mesh.ts';
import { netnsTest as test } from '../../support/netns-test.ts';
import { SteadyClient } from '../../support/steady-client.ts';
import { until } from '../../support/until.ts';

const environment = processEnvironment();
const SEED = Number(environment['BOOT_SEED'] ?? 12);
const PORT = 8_080;
const HBONE_PORT = '15008';
/** Connections that each client begins between two starts. */
const BETWEEN = 3;
/** Captured lines that a failure shows. */
const MAX_SHOWN = 400;
const ORDER_MS = 60_000;

/** Draws an order of these roles. */
function shuffled<T>(values: readonly T[], seed: number): readonly T[] {
  const [drawn = []] = sample(shuffledSubarray([...values], { minLength: values.length }), {
    seed,
    numRuns: 1,
  });
  return drawn;
}

function permutations(roles: readonly BootRole[]): readonly (readonly BootRole[])[] {
  if (roles.length === 0) return [[]];
  return roles.flatMap((first) =>
    permutations(roles.filter((role) => role !== first)).map((rest) => [first, ...rest]),
  );
}

/** The orders of this run. */
function orders(): readonly (readonly BootRole[])[] {
  if (environment['BOOT_ORDERS'] === 'all') return shuffled(permutations(BOOT_ROLES), SEED);
  const circle = shuffled(BOOT_ROLES, SEED);
  return circle.map((first, index) => {
    const last = circle[(index + 1) % circle.length];
    const middle = BOOT_ROLES.filter((role) => role !== first && role !== last);
    return [first, ...shuffled(middle, SEED + index), ...(last === undefined ? [] : [last])];
  });
}

const pod = (namespace: string, name: string): string => `
apiVersion: v1
kind: Pod
metadata: { name: ${name}, namespace: ${namespace} }
spec:
  nodeName: ${BOOT_NODE}
  ${namespace === 'demo' ? 'serviceAccountName: client' : ''}
  containers: [{ name: server, image: weft/sample }]
`;

/** The folders of a host's runtime, and the plugin as the runtime calls it. */
class Runtime {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  static async make(t: ExecutionContext): Promise<Runtime> {
    const runtime = new Runtime(await makeScratch('boot-orders'));
    t.teardown(() => rm(runtime.#dir, { recursive: true, force: true }));
    for (const folder of ['net.d', 'bin', 'run']) await mkdir(join(runtime.#dir, folder));
    const primary = { cniVersion: '1.0.0', name: 'net', plugins: [{ type: 'bridge' }] };
    await writeFile(join(runtime.#dir, 'net.d/10-net.conflist'), JSON.stringify(primary));
    return runtime;
  }

  get agentEnvironment(): Record<string, string> {
    return {
      WEFT_NODE_AGENT_CNI: 'true',
      MOUNTED_CNI_NET_DIR: join(this.#dir, 'net.d'),
      WEFT_NODE_AGENT_CNI_BIN_DIR: join(this.#dir, 'bin'),
      CNI_AGENT_RUN_DIR: join(this.#dir, 'run'),
    };
  }

  /** Adds the pod again and again, as kubelet does, until it may start. */
  async add(name: string, netns: string, ip: string): Promise<number> {
    const config = {
      cniVersion: '1.0.0',
      name: 'net',
      type: 'weft-cni',
      cni_agent_run_dir: join(this.#dir, 'run'),
      on_unknown: 'deny',
      prevResult: { cniVersion: '1.0.0', ips: [{ address: `${ip}/20` }] },
    };
    let refused = 0;
    await until(
      async () => {
        const environment = addEnvironment(name, { CNI_NETNS: netns });
        const { code, stdout } = await runPlugin(environment, JSON.stringify(config), PLUGIN_PATH);
        if (code === 0) return true;
        refused += 1;
        throw new Error(stdout);
      },
      { what: `${name} may start`, timeoutMs: ORDER_MS },
    );
    return refused;
  }
}

/** Both ends of a captured packet. */
interface Packet {
  readonly line: string;
  readonly from: string;
  readonly to: string;
  readonly ports: readonly string[];
}

function packetOf(line: string): Packet {
  const [, from = '', source = '', to = '', destination = ''] =
    / IP6? ([\da-f.:]+)\.(\d+) > ([\da-f.:]+)\.(\d+): /.exec(line) ?? [];
  return { line, from, to, ports: [source, destination] };
}

/** Waits until each client has begun some connections, and the control, which nothing disturbs, had answers. */
async function settle(clients: readonly SteadyClient[], control: SteadyClient): Promise<void> {
  const all = [...clients, control];
  const before = all.map(({ counts }) => ({ ...counts }));
  const begun = (client: SteadyClient): number =>
    client.counts.begun - (before[all.indexOf(client)]?.begun ?? 0);
  const answered = before.at(-1)?.answered ?? 0;
  await until(
    () => all.every((client) => begun(client) >= BETWEEN) && control.counts.answered > answered,
    { what: 'connections between two starts' },
  );
}

test('no order in which a node starts its agent, proxy, Redis and ingester leaves an enrolled pod in plaintext', async (t) => {
  const drawn = orders();
  t.timeout(280_000 + drawn.length * ORDER_MS);
  const mesh = await TestMesh.up({ arguments: BOOT_ARGUMENTS, wait: false });
  t.teardown(() => mesh.down());
  const runtime = await Runtime.make(t);
  const roles = await BootRoles.take(mesh, runtime.agentEnvironment);
  t.teardown(() => roles.killAll());
  t.is((await mesh.apply(pod('plain', 'control'))).code, 0);
  for (const role of BOOT_ROLES) await roles.start(role);
  await roles.ready();
  const paths = meshPaths(mesh.name, environment);
  for (const node of ['node-1', 'node-2']) {
    // A proxy sends plaintext to a pod until it knows that the pod is enrolled.
    await until(
      async () => {
        const known = await askHboneWorkloads(paths, node);
        const members = (await mesh.pods()).filter(({ namespace }) => namespace === 'demo');
        return members.every(({ namespace, name }) => known.has(`${namespace}/${name}`));
      },
      { what: `the proxy of ${node} to know all pods` },
    );
  }
  // Answered by the supervisor, whatever roles run.
  const ip = async (name: string): Promise<string> => {
    const found = (await askPods(paths)).find((line) => line.name === name);
    if (found === undefined) throw new Error(`no pod ${name}`);
    return found.ip;
  };
  await until(() => ip('control'), { what: 'the pod outside the mesh' });
  const [api, web] = [await ip('api-1'), await ip('web-1')];
  const enrolled = new Set(
    (await mesh.pods()).filter(({ namespace }) => namespace === 'demo').map((line) => line.ip),
  );
  const clientOf = (name: string, to: string): SteadyClient => {
    const client = new SteadyClient(mesh.netns(name), { ip: to, port: PORT });
    t.teardown(() => client.stop());
    return client;
  };
  const serving = async (clients: readonly SteadyClient[], when: string): Promise<void> => {
    for (const client of clients) {
      const { answered } = client.counts;
      await until(() => client.counts.answered > answered, { what: `an answer ${when}` });
    }
  };

  /** Tells when what happened, by the clock of the captured lines. */
  const said = (text: string): void => t.log(`${new Date().toISOString().slice(11)} ${text}`);
  const link = { netns: mesh.netns(BOOT_NODE), device: 'eth0', filter: `not port ${HBONE_PORT}` };
  let answeredControl = 0;
  const { packets } = await captureWhile(link, async () => {
    const control = clientOf('plain-control', api);
    const clients = [clientOf('demo-client', api), clientOf('demo-api-2', web)];
    await serving([...clients, control], 'before the first order');
    for (const [index, order] of drawn.entries()) {
      const data = index % 2 === 0 ? 'kept' : 'lost';
      said(`seed ${SEED}: all are killed, then ${order.join(', ')}, data of Redis ${data}`);
      await Promise.all(shuffled(BOOT_ROLES, SEED + index).map((role) => roles.kill(role)));
      if (data === 'lost') await roles.loseData();
      await settle(clients, control);
      const late = `late-${index}`;
      t.is((await mesh.apply(pod('demo', late))).code, 0);
      const lateIp = await until(() => ip(late), { what: `${late} is there` });
      enrolled.add(lateIp);
      const netns = mesh.netns(`demo-${late}`);
      const started = runtime.add(`demo/${late}`, netns, lateIp).then((refused) => {
        const client = clientOf(`demo-${late}`, api);
        return { client, refused };
      });
      // Awaited below; a role that fails to start is to be told first.
      started.catch(() => undefined);
      try {
        for (const role of order) {
          await roles.start(role);
          said(`${role} answers`);
          await settle(clients, control);
        }
        const { client, refused } = await started;
        await roles.ready();
        await serving([...clients, client, control], `after ${order.join(', ')}`);
        await client.stop();
        said(`all are back; ${late} started after ${refused} refusals`);
      } catch (error) {
        for (const role of BOOT_ROLES) t.log(role, roles.output(role));
        throw error;
      }
      t.is((await mesh.delete(pod('demo', late))).code, 0);
    }
    await Promise.all([...clients, control].map((client) => client.stop()));
    answeredControl = control.counts.answered;
    for (const client of clients) t.log(client.counts);
  });

  const seen = packets.map(packetOf);
  const plain = seen.filter(
    ({ from, to, ports }) => enrolled.has(from) && enrolled.has(to) && !ports.includes(HBONE_PORT),
  );
  t.deepEqual(
    plain
      .filter(({ line }) => line.includes('[S]'))
      .slice(0, MAX_SHOWN)
      .map(({ line }) => line),
    [],
  );
  t.is(plain.length, 0);
  // The capture saw each plaintext connection of the pod outside the mesh.
  const outside = await ip('control');
  const begun = seen.filter(
    ({ from, to, line }) => from === outside && to === api && line.includes('Flags [S],'),
  );
  t.true(answeredControl >= drawn.length * (BOOT_ROLES.length + 1));
  t.true(begun.length >= answeredControl, `${begun.length} of ${answeredControl}`);
});
