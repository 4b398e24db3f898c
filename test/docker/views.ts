/** Checks a mesh of containers through the engine, its actors and the command line. */
import type { ExecutionContext } from 'ava';
import { until } from '../support/until.ts';
import type { Rig } from './rig.ts';
import { SECRET_READERS, readableIn, secretsOf } from './secrets.ts';
import { serviceLine } from './services-table.ts';

/** The number of services in docker-compose.yml. */
const SERVICES = 28;
const ONLY_CLIENT = JSON.stringify({
  apiVersion: 'security.istio.io/v1',
  kind: 'AuthorizationPolicy',
  metadata: { name: 'only-client', namespace: 'demo' },
  spec: {
    selector: { matchLabels: { app: 'api' } },
    rules: [{ from: [{ source: { principals: ['cluster.local/ns/demo/sa/client'] } }] }],
  },
});

/** Checks that every container matches its service and is healthy. */
export async function rightsOfServices(t: ExecutionContext, rig: Rig): Promise<void> {
  const { compose, host } = rig;
  const ids = await compose.containers();
  for (const facts of await host.inspect(...ids)) {
    if (facts.State.Health !== undefined) await rig.healthy(facts.Id);
  }
  const lines = (await host.inspect(...ids)).map(serviceLine);
  t.log(
    lines
      .map(({ text }) => text)
      .toSorted()
      .join('\n'),
  );
  t.deepEqual(
    lines.flatMap(({ wrong }) => wrong),
    [],
  );
  t.is(new Set(lines.map(({ service }) => service)).size, SERVICES);
}

/** Checks that each actor can read its own secrets and no others. */
export async function secretsApart(t: ExecutionContext, { compose }: Rig): Promise<void> {
  const secrets = await secretsOf(compose);
  t.true(secrets.length > 14, `${secrets.length}`);
  for (const service of SECRET_READERS) {
    const own = secrets.filter(({ holders }) => holders.includes(service)).map(({ name }) => name);
    const found = await readableIn(compose, service, secrets);
    t.deepEqual(found.toSorted(), own.toSorted(), service);
  }
}

/** Checks that the agent writes settings of pods although `/proc/sys` of its container is read-only. */
export async function settingsWritten(t: ExecutionContext, { compose }: Rig): Promise<void> {
  const read = (name: string): Promise<string> =>
    compose.exec('client', 'cat', `/proc/sys/net/${name}`);
  t.is((await read('ipv4/tcp_migrate_req')).trim(), '1');
  t.is((await read('netfilter/nf_conntrack_tcp_loose')).trim(), '0');
  t.is((await read('netfilter/nf_conntrack_tcp_be_liberal')).trim(), '1');
  const logs = await compose.call('logs', '--no-color', 'node-1-agent');
  t.notRegex(logs.stdout, /established-at-risk|no-migration/);
}

/** Checks that `weft` shows, runs, applies and explains as in a local mesh. */
export async function commandLine(t: ExecutionContext, { compose }: Rig): Promise<void> {
  const status = JSON.parse(await compose.weft(['status', '-o', 'json'])) as {
    ready: boolean;
    waiting: string[];
    actors: { name: string }[];
    waypointBypass: string | null;
  };
  t.true(status.ready, status.waiting.join());
  t.is(status.waypointBypass, 'deny');
  t.is(status.actors.filter(({ name }) => name === 'xds-ingester').length, 2);
  t.regex(await compose.weft(['get', 'pods']), /^demo +client +node-1 .* yes /m);
  t.regex(await compose.weft(['get', 'certificates']), /sa\/client +node-1 +Available/);
  const exec = ['exec', 'demo/client', '--'];
  t.regex(await compose.weft([...exec, 'curl', '-s', 'http://api/']), /"name":"api-[12]"/);
  t.is(await compose.weft([...exec, 'cat'], 'said by hand'), 'said by hand');
  const failed = await t.throwsAsync(compose.weft([...exec, 'sh', '-c', 'echo wrong >&2; exit 7']));
  t.like(failed, { code: 7, stderr: 'wrong\n' });
  const probe = ['--probe', '--send', String.raw`GET / HTTP/1.0\r\n\r\n`];
  t.regex(await compose.weft(['trace', 'demo/client', 'demo/api:80', ...probe]), /allowed/);
  await compose.weft(['apply', '-f', '-'], ONLY_CLIENT);
  const explain = ['policy', 'explain', '--from', 'demo/web-1', '--to', 'demo/api:80'];
  await until(async () => (await compose.weft(explain)).startsWith('DENIED'), { what: 'a denial' });
  await compose.weft(['delete', '-f', '-'], ONLY_CLIENT);
  const refused = await t.throwsAsync(compose.weft(['down']));
  t.regex((refused as unknown as { stderr: string }).stderr, /docker compose down/);
}
