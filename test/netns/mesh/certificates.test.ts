import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { certificateSign, SIGNED_BOARD, signedSchema } from '../../../lib/bus/catalog.ts';
import type { Signed } from '../../../lib/bus/catalog.ts';
import { present } from '../../../lib/errors/assert.ts';
import { requestFor } from '../../../lib/identity/csr.ts';
import { openBus } from '../../support/bus.ts';
import { Load } from '../../support/load.ts';
import type { TestMesh } from '../../support/mesh.ts';
import { undisturbed } from '../../support/mesh-faults.ts';
import { meshSuite } from '../../support/mesh-suite.ts';
import { until } from '../../support/until.ts';

const TTL_MS = 60_000;
const test = meshSuite({ environment: { SECRET_TTL: `${TTL_MS / 1_000}s` } });

const CA_ADDRESS = 'https://10.200.0.3:15012';
const ASK_CA = new URL('../../support/ask-ca.ts', import.meta.url).pathname;
const identity = (serviceAccount: string): string =>
  `spiffe://cluster.local/ns/demo/sa/${serviceAccount}`;

/** Reads all state of certificates that a refusal must not change. */
async function bystanders(mesh: TestMesh) {
  const pids = (await mesh.actors()).map(({ name, node, pid, restarts }) => ({
    name,
    node,
    pid,
    restarts,
  }));
  const names = (await mesh.certificates()).map((line) => `${line.node} ${line.identity}`);
  return { pids, names: names.sort() };
}

test('every identity of a node has a certificate on that node, and only there', async (t, mesh) => {
  const lines = await mesh.certificates();
  const names = (node: string): string[] =>
    lines
      .filter((line) => line.node === node)
      .map((line) => line.identity.split('/').at(-1) ?? '')
      .sort();
  t.deepEqual(names('node-1'), ['client', 'web']);
  t.deepEqual(names('node-2'), ['api', 'db']);
  for (const line of lines) t.true(Date.parse(line.notAfter ?? '') <= Date.now() + TTL_MS);
});

test('the CA signs for a node only what runs there, says why not, and nothing else breaks', async (t, mesh) => {
  const before = await bystanders(mesh);
  const load = await Load.start(mesh, 'demo/client', 'api:80', 'web:80');
  const ask = async (wanted: string): Promise<Record<string, unknown>> => {
    const asked = await mesh.inNetns(
      'node-1',
      process.execPath,
      ASK_CA,
      CA_ADDRESS,
      join(mesh.directory, 'roots', 'root-cert.pem'),
      join(mesh.directory, 'tokens', 'node-1', 'istio-token'),
      wanted,
    ).exit;
    t.is(asked.code, 0, asked.stderr);
    return JSON.parse(asked.stdout) as Record<string, unknown>;
  };
  const refused = await ask(identity('db'));
  t.is(refused['code'], 'IDENTITY_REFUSED');
  t.regex(String(refused['message']), /CA at .* refused/);
  t.is((await ask('spiffe://elsewhere.test/ns/demo/sa/web'))['code'], 'IDENTITY_REFUSED');
  t.deepEqual(await ask(identity('web')), { certificates: 2 });
  // Only the operator learns the reason; the caller learns only that it was refused.
  const [logged] = (await mesh.log('ca', null))
    .filter((line) => line['identity'] === identity('db'))
    .filter((line) => line['reason'] !== undefined);
  t.like(logged, { reason: 'no_such_pod', detail: 'no pod of demo/db runs on node-1' });
  await load.goesOn('after the refusal');
  await undisturbed(t, mesh, load);
  t.deepEqual(await bystanders(mesh), before);
});

test('the fetcher refuses a signing job for an identity of another node, and nothing else breaks', async (t, mesh) => {
  const before = await bystanders(mesh);
  const load = await Load.start(mesh, 'demo/client', 'api:80', 'web:80');
  // An attacker with node-1's proxy can do this.
  const { bus } = openBus(t, {
    endpoint: { kind: 'unix', path: join(mesh.directory, 'redis', 'redis.sock') },
    username: 'node-proxy.node-1',
    passwordFile: join(mesh.directory, 'secrets', 'redis', 'node-proxy.node-1'),
    caFile: null,
    prefix: 'weft',
  });
  const scope = { node: 'node-1' } as const;
  const queue = bus.queue(certificateSign, scope);
  t.teardown(() => queue.close());
  const board = bus.results(SIGNED_BOARD, scope, signedSchema);
  const id = `test.${randomBytes(8).toString('hex')}`;
  const { csrPem } = await requestFor(identity('db'));
  const job = { process: 'test', identity: identity('db'), csr: csrPem };
  await until(() => queue.add(id, job).then(() => true), { what: 'the job to be queued' });
  const answer: Signed | null = await board.wait(id, 30_000);
  t.like(answer, { ok: false, error: { code: 'IDENTITY_REFUSED' } });
  t.regex(answer?.ok === false ? answer.error.message : '', /sa\/db.*node-1/);
  // The fetcher may not know a new pod yet, so the job is retried, as `weft get queues` shows.
  const failed = async (): Promise<number> =>
    (await mesh.json<{ name: string; failed: number }[]>('get', 'queues'))
      .filter(({ name }) => name.includes('node-1') && name.includes('sign'))
      .reduce((sum, line) => sum + line.failed, 0);
  await until(async () => (await failed()) === 1, { what: 'the refused job to be counted' });
  await queue.remove(id);
  await until(async () => (await failed()) === 0, { what: 'the refused job to be gone' });
  await load.goesOn('after the refusal');
  await undisturbed(t, mesh, load);
  t.deepEqual(await bystanders(mesh), before);
});

test('certificates of 60 s are renewed under load without a failed request', async (t, mesh) => {
  const first = await mesh.certificates();
  t.is(first.length, 4);
  const load = await Load.start(mesh, 'demo/client', 'api:80', 'web:80');
  // No kept connection is closed although its tunnel's certificates expire meanwhile.
  const expiry = Math.max(...first.map((line) => Date.parse(line.notAfter ?? '')));
  await until(() => Date.now() > expiry, {
    what: 'the first certificates to run out',
    timeoutMs: 2 * TTL_MS,
  });
  await load.goesOn('past the end of the first certificates');
  const now = await mesh.certificates();
  t.is(now.length, first.length);
  for (const old of first) {
    const renewed = present(
      now.find((line) => line.identity === old.identity && line.node === old.node),
      'no identity is lost',
    );
    t.is(renewed.state, 'Available');
    t.not(renewed.serial, old.serial);
    t.true(Date.parse(renewed.notAfter ?? '') > Date.now());
  }
  const issued = (await mesh.log('ca', null)).filter(
    (line) => line['message'] === 'certificate.issued' && line['identity'] === identity('api'),
  );
  t.true(issued.length >= 2, 'the renewal came from the CA');
  await undisturbed(t, mesh, load);
});
