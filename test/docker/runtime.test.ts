/** Tests weft-runtime as the default runtime of a real engine: the start of a container waits for its enrolment. */
import { once } from 'node:events';
import { mkdir, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { createServer } from '../../lib/http/node-http.ts';
import { captureWhile } from '../support/capture.ts';
import { DockerHost, dockerUnavailable } from '../support/docker-host.ts';
import { agentSite, metric, startAgent } from '../support/node-agent-kit.ts';
import type { AgentSite, TestAgent } from '../support/node-agent-kit.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import type { ServingProxy } from '../support/serving-proxy.ts';
import { importImage } from '../support/sleep-image.ts';
import { until } from '../support/until.ts';

const missing = dockerUnavailable();
if (missing !== null) process.stderr.write(`\nSKIPPED docker: ${missing}\n`);
const dockerTest = missing === null ? test.serial : test.serial.skip;

const PROGRAM = new URL('../../services/node-agent/cni/plugin/build/weft-cni', import.meta.url);
const IMAGE = 'shell';
const BRIDGE = 'weftdemo';
/** Nobody listens there. */
const TARGET = '10.77.0.1/8080';
/** Connects with its first instruction, tells what answered, and stays. */
const TALK = `exec 3<>/dev/tcp/${TARGET} && read -r line <&3 && echo "$line" || echo none; sleep infinity & wait`;
const AMBIENT = ['--label', 'istio.io/dataplane-mode=ambient'];
const MEMBER = (name: string): readonly string[] => [
  ...AMBIENT,
  '--label',
  `weft.io/pod=demo/${name}`,
];

let engine: DockerHost | null = null;

if (missing === null) {
  test.before(async (t) => {
    t.timeout(300_000);
    engine = await DockerHost.create();
    const program = join(engine.folder, 'weft-runtime');
    await symlink(PROGRAM.pathname, program);
    const config = join(engine.folder, 'daemon.json');
    const weft = { path: program, runtimeArgs: [`--weft-agent=${runtimeSocket(engine)}`] };
    await writeFile(config, JSON.stringify({ runtimes: { weft }, 'default-runtime': 'weft' }));
    engine.options = [`--config-file=${config}`];
    await engine.start('own');
    await importImage(engine, IMAGE, ['bash', 'sleep']);
    const name = `com.docker.network.bridge.name=${BRIDGE}`;
    await engine.docker('network', 'create', '--subnet=10.77.0.0/24', '--opt', name, 'demo');
  });
  test.after.always(async (t) => {
    t.timeout(120_000);
    await engine?.remove();
  });
}

/** The agents of all tests have their sockets there: the engine knows the path from its start. */
function runtimeSocket(docker: DockerHost): string {
  return join(docker.folder, 'zds', 'weft-runtime.sock');
}

/** An engine with a node agent and a proxy. */
interface Host {
  readonly docker: DockerHost;
  readonly site: AgentSite;
  readonly agent: TestAgent;
  readonly proxy: ServingProxy;
}

function running(): DockerHost {
  if (engine === null) throw new Error('the engine did not start');
  return engine;
}

async function host(t: ExecutionContext): Promise<Host> {
  const docker = running();
  const socket = join(docker.folder, 'zds', 'ztunnel.sock');
  const made = await agentSite(t, {
    DOCKER_HOST: `unix://${docker.socket}`,
    INPOD_UDS: socket,
  });
  const { WEFT_NODE_AGENT_PODS_DIR: _, ...environment } = made.environment;
  const site = { ...made, socket, environment };
  const agent = await startAgent(t, site);
  return { docker, site, agent, proxy: startServingProxy(t, socket) };
}

/** Starts a container that ends with the test; its id. */
async function start(
  t: ExecutionContext,
  name: string,
  options: readonly string[],
  script: string,
): Promise<string> {
  const docker = running();
  t.teardown(async () => {
    await docker.docker('rm', '--force', name);
  });
  const network = options.includes('--network') ? [] : ['--network', 'demo'];
  const words = ['--detach', '--name', name, ...network, ...options, IMAGE, '-c', script];
  return (await docker.docker('run', ...words)).stdout.trim();
}

async function pidOf(id: string): Promise<number> {
  return (await running().inspect(id))[0]?.State.Pid ?? 0;
}

/** Waits until a container has said so many lines; returns them. */
async function lines(id: string, count: number): Promise<readonly string[]> {
  let said: readonly string[] = [];
  await until(
    async () => {
      said = (await running().docker('logs', id)).stdout.trim().split('\n');
      return said.length >= count && said[0] !== '';
    },
    { what: `${count} lines of ${id}` },
  );
  return said;
}

/** The pod is enrolled in the network of this process. */
function enrolledIn({ agent }: Host, pid: number): boolean {
  return agent
    .enrolments()
    .some((row) => row.netns === `/proc/${pid}/ns/net` && row.state === 'enabled');
}

dockerTest(
  'no packet of a container leaves in plaintext, from its first instruction on',
  async (t) => {
    const node = await host(t);
    const { docker } = node;
    const captured = await captureWhile(
      { netns: `/run/netns/${docker.netns}`, device: BRIDGE, filter: 'tcp dst port 8080' },
      async () => {
        // The control: it is refused, and seen.
        await start(t, 'outsider', [], TALK);
        const talker = await start(t, 'talker', MEMBER('talker'), TALK);
        // Each of them speaks before it is killed.
        await lines(talker, 1);
        await docker.docker('restart', '--time', '0', talker);
        await lines(talker, 2);
        await docker.docker('stop', '--time', '0', talker);
        await docker.docker('start', talker);
        // The proxy's listener answered each first connection.
        t.deepEqual(await lines(talker, 3), Array(3).fill('15001 10.77.0.1 8080'));
      },
    );
    const addresses = JSON.parse((await docker.docker('inspect', 'outsider', 'talker')).stdout) as {
      NetworkSettings: { Networks: { demo: { IPAddress: string } } };
    }[];
    const [outsider, talker] = addresses.map((one) => one.NetworkSettings.Networks.demo.IPAddress);
    const from = (address?: string): readonly string[] =>
      captured.packets.filter((line) => line.includes(` IP ${address}.`));
    t.true(from(outsider).length > 0, 'the control was captured');
    t.deepEqual(from(talker), []);
    t.is(captured.packets.length, from(outsider).length);
  },
);

dockerTest('the event of a held start finds the pod as it is', async (t) => {
  const node = await host(t);
  const { agent, docker, proxy } = node;
  const first = await start(t, 'first', MEMBER('first'), TALK);
  t.is(agent.state(first), 'enabled');
  const second = await start(t, 'second', MEMBER('second'), TALK);
  await docker.docker('stop', '--time', '0', second);
  await until(() => agent.state(second) === undefined, { what: 'a look after the start' });
  t.deepEqual(
    proxy.told.filter((line) => line.includes(first)),
    [`add ${first}`],
  );
  t.like(
    agent.enrolments().find((row) => row.podUid === first),
    { state: 'enabled', driftRepairs: 0, netns: `/proc/${await pidOf(first)}/ns/net` },
  );
  t.is(await metric(agent, 'nodeagent_reconcile_events_total{type="add"}'), 2);
  t.is(await metric(agent, 'nodeagent_container_starts_total{response_code="200"}'), 2);
  const updates = await metric(agent, 'nodeagent_reconcile_events_total{type="update"}');
  t.true(Number.isNaN(updates), 'no record changed');
  t.false(agent.lines.some(({ message }) => message === 'container.ran-before-enrolment'));
});

dockerTest(
  'without an agent a container of the mesh does not start, and any other does',
  async (t) => {
    const failure = await t.throwsAsync(
      start(t, 'waiting', [...MEMBER('waiting'), '--restart', 'always'], TALK),
    );
    t.regex(
      String((failure as Error & { stderr?: string }).stderr),
      /weft-runtime: the container is to be in the mesh, but the node agent cannot be reached: .*weft-runtime\.sock/,
    );
    await start(t, 'plain', [], TALK);
    await start(
      t,
      'out',
      ['--label', 'istio.io/dataplane-mode=none', '--label', 'weft.io/pod=demo/out'],
      TALK,
    );
    await start(
      t,
      'compose',
      ['--label', 'weft.io/node=node-1', '--label', 'weft.io/pod=demo/c'],
      TALK,
    );
    await start(t, 'joined', [...MEMBER('joined'), '--network', 'container:plain'], TALK);
    await start(t, 'machine', [...MEMBER('machine'), '--network', 'host'], TALK);

    const node = await host(t);
    await running().docker('start', 'waiting');
    t.true(enrolledIn(node, await pidOf('waiting')));
  },
);

dockerTest(
  'the agent refuses a container that cannot be the pod that it claims to be',
  async (t) => {
    const node = await host(t);
    const pod = await start(t, 'same', MEMBER('same'), TALK);
    const refused = async (name: string, ...options: string[]): Promise<string> => {
      const failure = await t.throwsAsync(start(t, name, [...AMBIENT, ...options], TALK));
      const [, reason = ''] =
        /weft-runtime: (.*): unknown/.exec((failure as Error & { stderr: string }).stderr) ?? [];
      return reason;
    };
    t.is(
      await refused('again', '--label', 'weft.io/pod=demo/same'),
      `demo/same exists already: ${pod.slice(0, 12)}`,
    );
    t.is(
      await refused('nameless'),
      'label istio.io/dataplane-mode needs weft.io/pod, namespace/name',
    );
    t.is(
      await refused('far', '--label', 'weft.io/pod=demo/far', '--label', 'weft.io/node=node-2'),
      'pod demo/far is on node-2',
    );
    t.is(
      await refused('alone', '--label', 'weft.io/pod=demo/alone', '--network', 'none'),
      'pod demo/alone has no address',
    );
    t.deepEqual(
      node.agent.enrolments().map(({ podUid }) => podUid),
      [pod],
    );
  },
);

dockerTest(
  'everything but a start is runc, and a container that restarts is held again',
  async (t) => {
    const node = await host(t);
    const { docker } = node;
    const exit = await t.throwsAsync(
      docker.docker('run', '--rm', ...MEMBER('seven'), '--network', 'demo', IMAGE, '-c', 'exit 7'),
    );
    t.is((exit as Error & { code?: number }).code, 7);
    const script = "trap 'exit 42' USR1; sleep infinity & wait";
    const id = await start(
      t,
      'steady',
      [...MEMBER('steady'), '--restart', 'always', '--stop-timeout', '0'],
      script,
    );
    const echoed = await docker.command(
      'docker',
      ['exec', '-i', id, 'bash', '-c', 'read -r x; echo "$x"; echo no >&2'],
      {},
      'yes\n',
    );
    t.deepEqual(echoed, { stdout: 'yes\n', stderr: 'no\n' });
    const failed = await t.throwsAsync(docker.docker('exec', id, 'bash', '-c', 'exit 9'));
    t.is((failed as Error & { code?: number }).code, 9);

    const before = await pidOf(id);
    process.kill(before, 'SIGKILL');
    await until(async () => ![0, before].includes(await pidOf(id)), { what: 'the restart' });
    t.true(enrolledIn(node, await pidOf(id)));

    // The engine answers nobody while it starts these containers.
    await docker.stop();
    await docker.start('own');
    t.true(enrolledIn(node, await pidOf(id)));

    await docker.docker('update', '--restart', 'no', id);
    await docker.docker('kill', '--signal', 'USR1', id);
    t.is((await docker.docker('wait', id)).stdout.trim(), '42');
  },
);

dockerTest('after a boot the agent starts what the engine could not', async (t) => {
  const { docker, site, agent, proxy } = await host(t);
  const options = ['--restart', 'always', '--stop-timeout', '0'];
  const id = await start(t, 'boot', [...MEMBER('boot'), ...options], TALK);
  await lines(id, 1);
  await agent.stop();
  await proxy.stop();
  await docker.stop();
  // The engine starts the container before it answers the agent.
  const booted = docker.start('own');
  const next = await startAgent(t, site);
  const serving = startServingProxy(t, site.socket);
  await booted;
  const node = { docker, site, agent: next, proxy: serving };
  await until(async () => enrolledIn(node, await pidOf(id)), { what: 'the container is back' });
  t.deepEqual(await lines(id, 2), Array(2).fill('15001 10.77.0.1 8080'));
});

/** A question of weft-runtime. */
interface Question {
  readonly ContainerID: string;
  readonly Pid: number;
}

/** Processes with these words in their command line. */
async function processesWith(...words: readonly string[]): Promise<readonly number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      return words.every((word) => line.includes(word)) ? [Number(pid)] : [];
    }),
  );
  return found.flat();
}

/** The process that the engine's shim started, without the guard that it forked. */
async function runtimeOf(id: string): Promise<number> {
  const pids = await processesWith('weft-runtime', `start\0${id}`);
  for (const pid of pids) {
    const [, parent] = /^PPid:\t(\d+)$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? [];
    if (!pids.includes(Number(parent))) return pid;
  }
  throw new Error('no runtime starts the container');
}

/** Folders and files that are named after the container: its cgroups, and the state of runc and containerd. */
async function traces(docker: DockerHost, id: string): Promise<readonly string[]> {
  const folders = ['/sys/fs/cgroup', join(docker.folder, 'exec')];
  const found = await Promise.all(
    folders.map((folder) => docker.command('find', [folder, '-name', `*${id}*`])),
  );
  return found.flatMap(({ stdout }) => stdout.split('\n').filter((line) => line !== ''));
}

/** Answers no question, but kills the runtime that asks it. Returns the questions. */
async function killer(
  t: ExecutionContext,
): Promise<{ readonly asked: Question[]; close(): Promise<void> }> {
  const socket = runtimeSocket(running());
  await mkdir(join(socket, '..'), { recursive: true });
  await rm(socket, { force: true });
  const asked: Question[] = [];
  const server = createServer({}, (request) => {
    void json(request).then(async (body) => {
      const question = body as Question;
      const { ContainerID: id, Pid: pid } = question;
      t.true((await traces(running(), id)).length > 0, 'the created container was there');
      t.is((await readFile(`/proc/${pid}/comm`, 'utf8')).trim(), 'runc:[2:INIT]');
      process.kill(await runtimeOf(id), 'SIGKILL');
      asked.push(question);
    });
  });
  server.listen(socket);
  await once(server, 'listening');
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    server.close();
  };
  t.teardown(close);
  return { asked, close };
}

dockerTest('a runtime that is killed while it asks leaves nothing of the container', async (t) => {
  const docker = running();
  const agent = await killer(t);
  const failure = await t.throwsAsync(start(t, 'killed', MEMBER('killed'), TALK));
  t.regex(
    String((failure as Error & { stderr?: string }).stderr),
    /signal: killed|OCI runtime start failed/,
  );
  const [question] = agent.asked;
  t.is(agent.asked.length, 1);
  const { ContainerID: id = '', Pid: pid = 0 } = question ?? {};
  t.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
  // The shim of the container may outlive the engine's answer a little.
  await until(async () => (await processesWith(id)).length === 0, { what: 'its processes to end' });
  await until(async () => (await traces(docker, id)).length === 0, { what: 'no trace of it' });
  await agent.close();

  const node = await host(t);
  await docker.docker('start', 'killed');
  t.true(enrolledIn(node, await pidOf(id)));
});
