/** Tests a node agent on a Docker host without Compose: labelled containers of a real engine are its pods. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { DockerHost, dockerUnavailable } from '../support/docker-host.ts';
import { agentSite, metric, startAgent } from '../support/node-agent-kit.ts';
import type { AgentSite, TestAgent } from '../support/node-agent-kit.ts';
import { startServingProxy } from '../support/serving-proxy.ts';
import type { ServingProxy } from '../support/serving-proxy.ts';
import { SLEEP_IMAGE, importSleepImage } from '../support/sleep-image.ts';
import { until } from '../support/until.ts';

const missing = dockerUnavailable();
if (missing !== null) process.stderr.write(`\nSKIPPED docker: ${missing}\n`);
const dockerTest = missing === null ? test.serial : test.serial.skip;

const NETWORK = 'demo';
const MEMBER = ['--label', 'istio.io/dataplane-mode=ambient'];

let engine: DockerHost | null = null;

if (missing === null) {
  test.before(async (t) => {
    t.timeout(300_000);
    engine = await DockerHost.create();
    await engine.start('own');
    await importSleepImage(engine);
    await engine.docker('network', 'create', '--subnet=10.77.0.0/24', NETWORK);
  });
  test.after.always(async (t) => {
    t.timeout(120_000);
    await engine?.remove();
  });
}

/** An engine with a node agent and a proxy. */
interface Host {
  readonly docker: DockerHost;
  readonly site: AgentSite;
  readonly agent: TestAgent;
  readonly proxy: ServingProxy;
}

async function site(t: ExecutionContext, docker: DockerHost): Promise<AgentSite> {
  const made = await agentSite(t, { DOCKER_HOST: `unix://${docker.socket}` });
  const { WEFT_NODE_AGENT_PODS_DIR: _, ...environment } = made.environment;
  return { ...made, environment };
}

async function host(t: ExecutionContext): Promise<Host> {
  const docker = engine;
  if (docker === null) throw new Error('the engine did not start');
  const own = await site(t, docker);
  const agent = await startAgent(t, own);
  return { docker, site: own, agent, proxy: startServingProxy(t, own.socket) };
}

/** Runs a container until the end of the test; returns its id. */
async function container(
  t: ExecutionContext,
  docker: DockerHost,
  name: string,
  ...options: readonly string[]
): Promise<string> {
  const labels = ['--label', `weft.io/pod=demo/${name}`];
  const network = options.includes('--network') ? [] : ['--network', NETWORK];
  const words = ['--detach', ...network, ...labels, ...options, SLEEP_IMAGE, 'infinity'];
  const { stdout } = await docker.docker('run', ...words);
  const id = stdout.trim();
  t.teardown(async () => {
    await docker.docker('rm', '--force', id);
  });
  return id;
}

const enrolled = ({ agent }: Host, id: string): Promise<boolean> =>
  until(() => agent.state(id) === 'enabled', { what: `${id} is enrolled` });

dockerTest('a labelled container is enrolled, and no other; it leaves with its stop', async (t) => {
  const node = await host(t);
  const { agent, docker, proxy, site: own } = node;
  const plain = await container(t, docker, 'plain');
  const out = await container(t, docker, 'out', '--label', 'istio.io/dataplane-mode=none');
  const web = await container(
    t,
    docker,
    'web',
    ...MEMBER,
    '--label',
    'weft.io/service-account=web',
  );
  await enrolled(node, web);
  await until(() => own.rows().get(web)?.state === 'enabled', { what: 'the row of the container' });
  t.like(own.rows().get(web), { namespace: 'demo', name: 'web', serviceAccount: 'web' });
  t.deepEqual([...proxy.served.keys()], [web]);
  t.deepEqual([agent.state(plain), agent.state(out)], [undefined, undefined]);
  const early = agent.lines.filter(({ message }) => message === 'container.ran-before-enrolment');
  t.like(early, [{ pod: 'demo/web', container: web, runtime: 'runc' }]);
  t.is(early.length, 1);

  await docker.docker('stop', '--time', '0', web);
  await until(() => !own.rows().has(web), { what: 'the row is gone' });
  await until(() => !proxy.served.has(web), { what: 'the proxy let go' });
  t.is(agent.state(web), undefined);

  // The engine gives it a new network namespace.
  await docker.docker('start', web);
  await enrolled(node, web);
  await docker.docker('restart', '--time', '0', web);
  const pid = async (): Promise<string> =>
    `/proc/${(await docker.inspect(web))[0]?.State.Pid}/ns/net`;
  const path = await pid();
  await until(
    () => agent.enrolments().some((row) => row.netns === path && row.state === 'enabled'),
    { what: 'the restarted container is enrolled' },
  );
});

dockerTest(
  'what runs while no agent does is enrolled by the next, and what is enrolled stays',
  async (t) => {
    const node = await host(t);
    const { docker } = node;
    const first = await container(t, docker, 'first', ...MEMBER);
    await enrolled(node, first);
    await node.agent.stop();
    const second = await container(t, docker, 'second', ...MEMBER);
    const agent = await startAgent(t, node.site);
    await enrolled({ ...node, agent }, first);
    await enrolled({ ...node, agent }, second);
    t.is(await metric(agent, 'nodeagent_drift_repaired_total{kind="rules"}'), 0);
    t.like(
      agent.enrolments().find((row) => row.podUid === first),
      { driftRepairs: 0 },
    );
  },
);

dockerTest(
  'while the engine does not answer the pods stay; then what has changed is seen',
  async (t) => {
    const node = await host(t);
    const { agent, docker } = node;
    const kept = await container(t, docker, 'kept', ...MEMBER);
    await enrolled(node, kept);
    docker.pause();
    try {
      await until(
        async () => (await metric(agent, 'nodeagent_pod_source_problems_total{kind="engine"}')) > 0,
        { what: 'the agent misses the engine' },
      );
      t.is(agent.state(kept), 'enabled');
    } finally {
      docker.resume();
    }
    await enrolled(node, await container(t, docker, 'later', ...MEMBER));
    t.is(agent.state(kept), 'enabled');
  },
);

dockerTest('a container that cannot be a pod is told of, and disturbs no other', async (t) => {
  const node = await host(t);
  const { agent, docker } = node;
  const web = await container(t, docker, 'same', ...MEMBER);
  await enrolled(node, web);
  const wrong = [
    await container(t, docker, 'nodes', ...MEMBER, '--network', 'host'),
    await container(t, docker, 'joined', ...MEMBER, '--network', `container:${web}`),
    await container(t, docker, 'same', ...MEMBER),
    await container(t, docker, 'x', ...MEMBER, '--label', 'weft.io/pod=no namespace'),
    await container(t, docker, 'far', ...MEMBER, '--label', 'weft.io/node=node-2'),
  ];
  const told = (id: string): unknown =>
    agent.lines.find((line) => String(line['problem']).startsWith(id.slice(0, 12)))?.['problem'];
  await until(() => wrong.every((id) => told(id)), { what: 'each is told of' });
  t.deepEqual(
    wrong.map((id) => String(told(id)).slice(14)),
    [
      "network host is not the container's own",
      `network container:${web} is not the container's own`,
      'demo/same exists already',
      'label weft.io/pod is not namespace/name: "no namespace"',
      'no node node-2',
    ],
  );
  t.deepEqual(
    agent.enrolments().map(({ podUid }) => podUid),
    [web],
  );
});
