/** Changes a mesh of containers while it carries traffic. */
import type { ExecutionContext } from 'ava';
import { until } from '../support/until.ts';
import { Generations, keptFrom } from './generations.ts';
import { ACTORS, ENOUGH, present } from './rig.ts';
import type { Rig } from './rig.ts';
import { startTable, startTime } from './start-times.ts';
import type { StartTime } from './start-times.ts';

/** Scales consumers and proxies up and down, and checks that no request from a pod's container fails. */
export async function scaleUnderLoad(
  t: ExecutionContext,
  { compose }: Rig,
  address: string,
): Promise<void> {
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
}

/** Stops each ingester in turn, and checks that changes arrive through the other. */
export async function ingestersTakeOver(t: ExecutionContext, rig: Rig): Promise<void> {
  const { compose, host } = rig;
  const both = await compose.containers('xds-ingester');
  t.is(both.length, 2);
  const address = await compose.serviceAddress('api');
  const load = await compose.load('client-server', `http://${address}/`);
  for (const [index, ingester] of both.entries()) {
    // A kill by a user, after which the engine does not restart it: the other one must suffice.
    await host.docker('kill', ingester);
    const name = `passed-on-${index}`;
    await compose.weft(['apply', '-f', '-'], serviceNamed(name));
    await until(async () => (await compose.weft(['get', 'services'])).includes(`${name}.demo`), {
      what: `service ${name} past ingester ${index}`,
      timeoutMs: 60_000,
    });
    await host.docker('start', ingester);
    await rig.healthy(ingester);
  }
  t.deepEqual(await load.stop(), []);
}

function serviceNamed(name: string): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'demo' },
    spec: { selector: { app: 'api' }, ports: [{ name: 'http', port: 80, targetPort: 8080 }] },
  });
}

/** Replaces the proxies of both nodes, then one node's while another actor is frozen; nothing may fail or be dropped. */
export async function replaceProxies(t: ExecutionContext, rig: Rig, count: number): Promise<void> {
  const { compose, host } = rig;
  const address = await compose.serviceAddress('api');
  const load = await compose.load('client-server', `http://${address}/`);
  const kept = await keptFrom(host, compose, 'client', { ip: address, port: 80 });
  const generations = new Generations(host, compose, { load, kept }, (line) => t.log(line));
  for (let number = 1; number <= count; number += 1) await generations.next(number);
  await generations.without('ca', true);
  await generations.without('control-plane', false);
  await generations.without('redis', true);
  kept.close();
  t.deepEqual(await load.stop(), []);
  // A proxy without connections ends and is removed.
  await until(
    async () => {
      const counts = ['node-1-proxy', 'node-2-proxy'].map((one) => compose.containers(one));
      return (await Promise.all(counts)).every(({ length }) => length === 1);
    },
    { what: 'the old proxies to end', timeoutMs: 120_000 },
  );
  const status = JSON.parse(await compose.weft(['status', '-o', 'json'])) as {
    actors: { name: string; generation: number }[];
  };
  const proxies = status.actors.filter(({ name }) => name === 'node-proxy');
  t.deepEqual(
    proxies.map(({ generation }) => generation).toSorted((a, b) => a - b),
    [count + 1, count + 4],
  );
}

/** Replaces the CA's container, and checks that the new one has the address of the old one. */
export async function replaceCa(t: ExecutionContext, rig: Rig): Promise<void> {
  const { compose, host } = rig;
  const [before] = await compose.containers('ca');
  await compose.weft(['upgrade', 'ca']);
  const after = await compose.containers('ca');
  t.is(after.length, 1);
  t.not(after[0], before);
  const format = '{{json .NetworkSettings.Networks}}';
  const { stdout } = await host.docker('inspect', '-f', format, present(after[0]));
  t.regex(stdout, /"IPAddress":"10\.200\.0\.3"/);
  await rig.healthy(present(after[0]));
}

/** Kills each actor, waits until it is healthy again, and reports how long each took to be ready. */
export async function killEach(t: ExecutionContext, rig: Rig): Promise<void> {
  const { compose, host } = rig;
  const times: StartTime[] = [];
  for (const service of ACTORS) {
    const container = present((await compose.containers(service))[0]);
    const pid = async (): Promise<number> => (await host.inspect(container))[0]?.State.Pid ?? 0;
    const before = await pid();
    process.kill(before, 'SIGKILL');
    await until(async () => ![0, before].includes(await pid()), {
      what: `${service} to be started again`,
      timeoutMs: 90_000,
    });
    await rig.healthy(container);
    await rig.answered();
    times.push(present(await startTime(host, service, container)));
  }
  t.deepEqual(
    times.map(({ service }) => service),
    [...ACTORS],
  );
  t.log(`from the start of its container to ready:\n${startTable(times)}`);
}
