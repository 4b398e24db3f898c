import { readFile, writeFile } from 'node:fs/promises';
import { X509Certificate } from 'node:crypto';
import { spawn } from 'node:child_process';
import test from 'ava';
import { SIGNED_BOARD, certificateSign, signedSchema } from '../../../lib/bus/catalog.ts';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';
import { requestFor } from '../../../lib/identity/csr.ts';
import { replaceFile } from '../../../lib/files/atomic-file.ts';
import { createRoot } from '../../../lib/identity/x509.ts';
import { openBus } from '../../support/bus.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import { publishWorkloads, startFetcher, startManager } from '../../support/certificates-kit.ts';
import type { CertificateUser } from '../../support/certificates-kit.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const WEFT = new URL('../../../services/cli/weft', import.meta.url).pathname;
const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
const CLIENT = 'spiffe://cluster.local/ns/demo/sa/client';
const API = 'spiffe://cluster.local/ns/demo/sa/api';
const WORKLOADS = { web: 'node-1', client: 'node-1', api: 'node-2' };

/** Waits for an error that matches `reason`. On a busy machine, a "no answer yet" may come first. */
async function told(user: CertificateUser, reason: RegExp): Promise<MeshError> {
  const [, error] = await until(
    () => user.unavailable.find(([, { message }]) => reason.test(message)),
    { what: String(reason) },
  );
  return error;
}

test('a workload of the node gets a certificate over Redis, the fetcher and the CA', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  const fetcher = await startFetcher(t, kit, redis);
  const user = await startManager(t, kit, redis);
  const hours = 'weft_certificates_first_expiry_hours';
  t.regex(await user.metrics.render(), new RegExp(`${hours} \\+Inf`));
  const certificate = await user.available(WEB);
  t.regex(await user.metrics.render(), new RegExp(`${hours} 23\\.9`));
  const leaf = new X509Certificate(certificate.chainPem);
  t.is(leaf.subjectAltName, `URI:${WEB}`);
  t.true(leaf.checkPrivateKey(certificate.key));
  t.is(certificate.rootsPem, await readFile(kit.bundlePath, 'utf8'));
  t.regex(await fetcher.metrics(), /weft_cert_fetcher_identities 2/);
  // It is counted after the answer was given.
  await until(async () => /weft_cert_fetcher_sign_seconds_count 1/.test(await fetcher.metrics()), {
    what: 'the count',
  });
  t.regex(await user.metrics.render(), /weft_certificates\{state="available"\} 1/);
});

test('with SYSTEM the store of the machine secures the connection to the CA, the mesh has its own roots', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  const env = {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    ...redis.environment('cert-fetcher.node-1'),
    NODE_NAME: 'node-1',
    CA_ADDRESS: kit.address(),
    CA_ROOT_CA: 'SYSTEM',
    WEFT_MESH_ROOT_CA: kit.bundlePath,
    AUTH_TOKEN: await kit.nodeToken('node-1'),
    // The machine's certificate store, as OpenSSL reads it.
    SSL_CERT_FILE: kit.bundlePath,
  };
  const fetcher = spawn(WEFT, ['run', 'cert-fetcher'], { env, stdio: 'ignore' });
  t.teardown(() => fetcher.kill('SIGKILL'));
  const user = await startManager(t, kit, redis);
  const certificate = await user.available(WEB);
  t.is(certificate.rootsPem, await readFile(kit.bundlePath, 'utf8'));
});

test('an identity of another node is refused by the fetcher, and nothing else is disturbed', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  const ca = await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  await startFetcher(t, kit, redis);
  const user = await startManager(t, kit, redis);
  user.manager.want(API, 'realTime');
  const error = await told(user, /no workload with the identity .*api runs on node-1/);
  t.true(user.unavailable.every(([identity]) => identity === API));
  t.is(error.code, 'IDENTITY_REFUSED');
  t.is(user.manager.records()[0]?.state, `Unavailable: ${error.message}`);
  await user.available(WEB);
  t.false(
    ca.lines.some((line) => line['identity'] === API),
    'the CA is not even asked',
  );
});

test('a fetcher that lies about what runs on its node is refused by the CA', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  const ca = await kit.start();
  // The mesh state places api on node-1, but the CA's pods place it on node-2.
  await publishWorkloads(t, redis, { ...WORKLOADS, api: 'node-1' });
  await startFetcher(t, kit, redis);
  const user = await startManager(t, kit, redis);
  await user.available(WEB);
  user.manager.want(API, 'realTime');
  await told(user, /the CA at .* refused: request impersonation/);
  const line = ca.lines.find((entry) => entry.message === 'certificate.request-refused');
  t.is(line?.['detail'], 'no pod of demo/api runs on node-1');
});

test('a CSR for another identity than the job names is a dead letter at once', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  const fetcher = await startFetcher(t, kit, redis);
  const { bus } = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy.node-1');
  await until(() => bus.connected, { what: 'Redis' });
  const queue = bus.queue(certificateSign, { node: 'node-1' });
  const { csrPem } = await requestFor(CLIENT);
  await until(
    async () => {
      await queue.add('forged', { process: 'p', identity: WEB, csr: csrPem });
      return true;
    },
    { what: 'the queue' },
  );
  await until(() => fetcher.lines.some((line) => line.message === 'job.dead'), {
    what: 'the dead letter',
  });
  const line = fetcher.lines.find((entry) => entry.message === 'job.dead');
  t.regex(String(line?.['error']), /the CSR names .*client, the job .*web/);
  const admin = openBus(t, redis.config());
  await until(() => admin.bus.connected, { what: 'Redis' });
  const [sign] = await admin.bus.queueCounts([{ node: 'node-1' }]);
  t.is(sign?.dead, 1);
});

test('a signing job that runs twice gives two certificates for its key, of which either will do', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  await startFetcher(t, kit, redis);
  const { bus } = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy.node-1');
  await until(() => bus.connected, { what: 'Redis' });
  const queue = bus.queue(certificateSign, { node: 'node-1' });
  const board = bus.results(SIGNED_BOARD, { node: 'node-1' }, signedSchema);
  const { csrPem, key } = await requestFor(WEB);
  const signed = new Map<string, X509Certificate>();
  for (const runs of [1, 2]) {
    await until(
      async () => {
        await queue.add('twice', { process: 'p', identity: WEB, csr: csrPem });
        const answer = await board.wait('twice', 1_000);
        if (answer?.ok !== true) return false;
        const leaf = new X509Certificate(answer.chain[0] ?? '');
        signed.set(leaf.serialNumber, leaf);
        return signed.size === runs;
      },
      { what: `certificate ${runs}` },
    );
  }
  for (const leaf of signed.values()) {
    t.true(leaf.checkPrivateKey(key));
    t.is(leaf.subjectAltName, `URI:${WEB}`);
  }
});

test('real-time requests go before warm-ups that came first', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  const ca = await kit.start();
  const accounts = Array.from({ length: 30 }, (_, index) => `warm${index}`);
  const { podObject } = await import('../../support/pods-api.ts');
  await until(() => kit.pods?.watchers === 1, { what: 'the CA to follow the pods' });
  for (const name of accounts) {
    kit.pods?.send({
      type: 'ADDED',
      object: podObject('demo', `${name}-1`, { node: 'node-1', account: name }),
    });
  }
  await publishWorkloads(t, redis, {
    ...WORKLOADS,
    ...Object.fromEntries(accounts.map((name) => [name, 'node-1'])),
  });
  const user = await startManager(t, kit, redis);
  await until(() => user.bus.bus.connected, { what: 'Redis' });
  const counts = openBus(t, redis.config());
  const queued = async (): Promise<number> => {
    const [sign] = await counts.bus.queueCounts([{ node: 'node-1' }]);
    return sign?.waiting ?? 0;
  };
  // The fetcher does not run yet, so the order of arrival is certain.
  for (const name of accounts)
    user.manager.want(`spiffe://cluster.local/ns/demo/sa/${name}`, 'warmUp');
  await until(async () => (await queued()) === 30, { what: 'warm-ups to be queued' });
  user.manager.want('spiffe://cluster.local/ns/demo/sa/warm29', 'realTime');
  user.manager.want(WEB, 'realTime');
  await until(async () => (await queued()) === 31, { what: 'all to be queued' });
  const raised = (): boolean =>
    user.lines.every((line) => !line.message.includes('cannot be raised'));
  await startFetcher(t, kit, redis);
  await until(() => user.published.length === 31, { what: 'all certificates', timeoutMs: 30_000 });
  t.true(raised());
  const issued = ca.lines.filter((line) => line.message === 'certificate.issued');
  const order = issued.map((line) => String(line['identity']));
  // Eight requests run at once and end in any order, so "first" means in the first half.
  t.true(order.indexOf(WEB) < 15, order.join('\n'));
  t.true(order.indexOf('spiffe://cluster.local/ns/demo/sa/warm29') < 15);
});

test('while the CA is away a waiting connection learns why; when it is back the request succeeds', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  const ca = await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  await startFetcher(t, kit, redis);
  const user = await startManager(t, kit, redis);
  const held = await user.available(WEB);
  await ca.stop();
  user.manager.want(CLIENT, 'realTime');
  const reason = await told(user, /the CA at https:\/\/127\.0\.0\.1:\d+ did not answer/);
  t.is(reason.code, 'IDENTITY_UNAVAILABLE');
  t.is(user.manager.status(WEB).kind, 'available', 'what is held stays in use');
  await kit.start();
  await user.available(CLIENT);
  const still = user.manager.status(WEB);
  t.true(still.kind === 'available' && still.certificate.serialNumber === held.serialNumber);
});

test('requests outlive the fetcher, and Redis with all its data', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  const fetcher = await startFetcher(t, kit, redis);
  const user = await startManager(t, kit, redis);
  await user.available(WEB);
  await fetcher.stop();
  user.manager.want(CLIENT, 'realTime');
  await until(() => user.unavailable.some(([, error]) => /no answer/.test(error.message)), {
    what: 'word that nobody answers',
  });
  await redis.kill();
  t.is(user.manager.status(WEB).kind, 'available');
  await redis.start({ empty: true });
  await publishWorkloads(t, redis, WORKLOADS);
  await startFetcher(t, kit, redis);
  await user.available(CLIENT);
});

test('certificates of a few seconds are renewed again and again, and are never used beyond their end', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  await startFetcher(t, kit, redis, { environment: { SECRET_TTL: '30s' } });
  const user = await startManager(t, kit, redis);
  await user.available(WEB);
  // On a busy machine the first one may have taken longer than a connection waits.
  const unavailableBefore = user.unavailable.length;
  await until(
    () => {
      const status = user.manager.status(WEB);
      if (status.kind !== 'available') throw new Error(`not available: ${status.kind}`);
      return user.published.length >= 4;
    },
    { what: 'three renewals', timeoutMs: 60_000 },
  );
  t.deepEqual(user.unavailable.slice(unavailableBefore), []);
  t.is(
    new Set(user.published.map((certificate) => certificate.serialNumber)).size,
    user.published.length,
  );
  for (const [index, certificate] of user.published.slice(1).entries()) {
    t.true(certificate.notAfterMs > (user.published[index]?.notAfterMs ?? 0));
  }
});

test('the trust bundle is followed; a broken one changes nothing', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  await startFetcher(t, kit, redis);
  const user = await startManager(t, kit, redis);
  const first = await user.available(WEB);
  const own = await readFile(kit.bundlePath, 'utf8');
  await writeFile(kit.bundlePath, 'half a fi');
  await until(() => user.bundle.problem, { what: 'the broken bundle to be noticed' });
  t.is(user.bundle.current?.pem, own);
  t.is(user.published.length, 1);
  const next = await createRoot('cluster.local', Date.now() - 1_000, Date.now() + 86_400_000);
  await replaceFile(kit.bundlePath, own + next.certificatePem, 0o644);
  await until(() => user.published.length > 1, { what: 'the new roots' });
  t.is(user.bundle.problem, null);
  t.is(user.published[1]?.rootsPem, own + next.certificatePem);
  t.is(user.published[1]?.serialNumber, first.serialNumber);
});

test('a token that is missing is told, and put right without a restart', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  await publishWorkloads(t, redis, WORKLOADS);
  const tokenPath = await kit.nodeToken('node-1');
  const token = await readFile(tokenPath, 'utf8');
  await writeFile(tokenPath, '\n');
  await startFetcher(t, kit, redis, { environment: { AUTH_TOKEN: tokenPath } });
  const user = await startManager(t, kit, redis);
  user.manager.want(WEB, 'realTime');
  await told(user, /token file .* is empty/);
  await writeFile(tokenPath, token);
  t.is((await user.available(WEB)).identity, WEB);
});

test('forgetting an identity takes its request out of the queue', async (t) => {
  const redis = await startTestRedis(t);
  const kit = await createCaKit(t);
  await kit.start();
  const user = await startManager(t, kit, redis);
  const admin = openBus(t, redis.config());
  const waiting = async (): Promise<number> => {
    const [sign] = await admin.bus.queueCounts([{ node: 'node-1' }]);
    return sign?.waiting ?? 0;
  };
  user.manager.want(WEB, 'warmUp');
  user.manager.want(CLIENT, 'warmUp');
  await until(async () => (await waiting()) === 2, { what: 'both requests' });
  user.manager.forget(WEB);
  await until(async () => (await waiting()) === 1, { what: 'one to be taken out' });
  t.deepEqual(user.manager.identities(), [CLIENT]);
});
