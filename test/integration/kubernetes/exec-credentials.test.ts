/** The client of the Kubernetes API with credentials of a real program, as a kubeconfig names it. */
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { processEnvironment } from '../../../lib/config/env.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { readKubeconfig } from '../../../lib/kubernetes/connection.ts';
import { execCredentials } from '../../../lib/kubernetes/exec-credentials.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { createTunnelPki } from '../../support/tunnel-pki.ts';

const MINUTE_MS = 60_000;

/** Gives `token-1`, `token-2` and so on, until the time that a file tells. */
const PROGRAM = `
n=$(($(cat "$FOLDER/runs") + 1))
echo "$n" > "$FOLDER/runs"
printf '{"status":{"token":"token-%s","expirationTimestamp":%s}}' "$n" "$(cat "$FOLDER/expiry")"
`;

interface Kit {
  readonly clock: FakeClock;
  readonly client: KubernetesClient;
  /** The tokens that the server has seen. */
  readonly seen: string[];
  /** The tokens that it accepts. */
  accepts: RegExp;
  /** The JSON of the expiry that the program tells from now on. */
  expires(expiry: string): Promise<void>;
  runs(): Promise<number>;
}

const inMs = (clock: FakeClock, ms: number): string =>
  JSON.stringify(new Date(clock.now() + ms).toISOString());

async function start(t: ExecutionContext, expiry: (clock: FakeClock) => string): Promise<Kit> {
  const folder = await makeScratch('exec');
  const clock = new FakeClock();
  const pki = await createTunnelPki();
  const seen: string[] = [];
  const server = createServer(await pki.issueLocal(), ({ headers }, response) => {
    const token = headers.authorization?.replace('Bearer ', '') ?? '';
    seen.push(token);
    response.writeHead(kit.accepts.test(token) ? 200 : 401).end('{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const expires = (text: string): Promise<void> => writeFile(join(folder, 'expiry'), text);
  await expires(expiry(clock));
  await writeFile(join(folder, 'runs'), '0');
  const exec = {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: 'sh',
    args: ['-c', PROGRAM],
    env: [{ name: 'FOLDER', value: folder }],
  };
  const cluster = {
    server: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    'certificate-authority-data': Buffer.from(pki.rootPem).toString('base64'),
  };
  const file = join(folder, 'kubeconfig');
  const parts = {
    'current-context': 'a',
    contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
    clusters: [{ name: 'a', cluster }],
    users: [{ name: 'a', user: { exec } }],
  };
  await writeFile(file, JSON.stringify(parts));
  const connection = await readKubeconfig(file, {
    exec: (program) => execCredentials(program, processEnvironment()),
  });
  const client = new KubernetesClient(connection, { clock, userAgent: 'test' });
  t.teardown(() => {
    client.close();
    server.close();
    server.closeAllConnections();
  });
  const runs = async (): Promise<number> => Number(await readFile(join(folder, 'runs'), 'utf8'));
  const kit: Kit = { clock, client, seen, accepts: /./, expires, runs };
  return kit;
}

test('credentials of a program are replaced before they expire, by one run for all requests', async (t) => {
  const { client, clock, expires, runs, seen } = await start(t, (now) => inMs(now, 5 * MINUTE_MS));
  await client.get('/a');
  await clock.advance(4 * MINUTE_MS);
  await client.get('/a');
  t.deepEqual(seen, ['token-1', 'token-1']);
  await clock.advance(MINUTE_MS - 5_000);
  await expires(inMs(clock, 5 * MINUTE_MS));
  await Promise.all([client.get('/a'), client.get('/b'), client.get('/c')]);
  t.deepEqual(seen.slice(2), ['token-2', 'token-2', 'token-2']);
  await clock.advance(2 * MINUTE_MS);
  await client.get('/a');
  t.is(await runs(), 2);
});

test('credentials of a program that the API server refuses are replaced once, however long they last', async (t) => {
  const kit = await start(t, () => 'null');
  kit.accepts = /token-2/;
  await Promise.all([kit.client.get('/a'), kit.client.get('/b'), kit.client.get('/c')]);
  t.is(kit.seen.filter((token) => token === 'token-2').length, 3);
  t.is(await kit.runs(), 2);
  kit.accepts = /none/;
  await t.throwsAsync(kit.client.get('/a'), { code: 'KUBERNETES_REFUSED' });
  t.is(await kit.runs(), 3, 'one more for the request');
});

test('a program that gives nothing new fails the request, and runs again for the next', async (t) => {
  const { client, clock, expires, seen } = await start(t, (now) => inMs(now, MINUTE_MS));
  await clock.advance(MINUTE_MS);
  await expires('"soon"');
  const why = { code: 'KUBERNETES_REFUSED', message: /program sh gave no credentials: its output/ };
  await t.throwsAsync(client.get('/a'), why);
  t.deepEqual(seen, [], 'expired credentials are not used');
  await expires(inMs(clock, MINUTE_MS));
  await client.get('/a');
  t.deepEqual(seen, ['token-3']);
});
