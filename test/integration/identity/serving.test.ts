import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { X509Certificate } from 'node:crypto';
import { connect as connectTls } from 'node:tls';
import type { PeerCertificate } from 'node:tls';
import { once } from 'node:events';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import { createCertificateMethod } from '../../../lib/identity/ca-protocol.ts';
import { CaClient, MAX_ANSWER_BYTES } from '../../../lib/identity/ca-client.ts';
import type { GrpcClientOptions } from '../../../lib/grpc/client.ts';
import {
  RotatingServerCredentials,
  bindGrpcServer,
  createGrpcServer,
  shutDownGrpcServer,
} from '../../../lib/grpc/server.ts';
import type { ServingCertificate } from '../../../lib/tls/parameters.ts';
import { ServingCertKeeper } from '../../../lib/identity/serving-cert.ts';
import { createRequest } from '../../../lib/identity/csr.ts';
import { createRoot, issueLeaf } from '../../../lib/identity/x509.ts';
import type { Issuer } from '../../../lib/identity/x509.ts';
import { parseRequest } from '../../../lib/identity/csr.ts';
import type { AltName } from '../../../lib/identity/subject-alt-name.ts';
import { keptLog } from '../../support/actor-context.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import type { CaKit } from '../../support/ca-kit.ts';
import { accountSubject } from '../../support/token-issuer.ts';
import { until } from '../../support/until.ts';

const never = new AbortController().signal;
const NAMES = 'istio-system/istiod=istiod.istio-system.svc,127.0.0.1';

interface Authority {
  readonly pem: string;
  serve(names: readonly AltName[]): Promise<ServingCertificate>;
}

async function authority(): Promise<Authority> {
  const now = Date.now();
  const root = await createRoot('test', now - 1_000, now + 3_600_000);
  const issuer: Issuer = { certificate: new X509Certificate(root.certificatePem), key: root.key };
  return {
    pem: root.certificatePem,
    async serve(names) {
      const { key, csrPem } = await createRequest([]);
      const { publicKey } = await parseRequest(csrPem);
      const chainPem = await issueLeaf(issuer, {
        publicKey,
        names,
        notBeforeMs: now - 1_000,
        notAfterMs: now + 3_600_000,
      });
      return { chainPem, keyPem: key.export({ format: 'pem', type: 'pkcs8' }) };
    },
  };
}

interface EchoServer {
  readonly port: number;
  readonly credentials: RotatingServerCredentials;
  /** The metadata of the received requests. */
  readonly seen: Record<string, unknown>[];
}

/** Starts a server that answers every request with two empty elements and keeps the metadata. */
async function serveEcho(
  t: ExecutionContext,
  certificate: ServingCertificate,
): Promise<EchoServer> {
  const seen: Record<string, unknown>[] = [];
  const server = createGrpcServer(64 * 1024);
  server.addService(
    { createCertificate: createCertificateMethod },
    {
      createCertificate: (
        call: { metadata: { getMap(): Record<string, unknown> } },
        reply: (error: null, response: { chain: string[] }) => void,
      ) => {
        seen.push(call.metadata.getMap());
        reply(null, { chain: ['a', 'b'] });
      },
    },
  );
  const credentials = new RotatingServerCredentials(certificate);
  const port = await bindGrpcServer(
    server,
    { kind: 'tcp', host: '127.0.0.1', port: 0 },
    credentials,
  );
  t.teardown(() => shutDownGrpcServer(server, AbortSignal.abort()));
  return { port, credentials, seen };
}

function client(t: ExecutionContext, port: number, options: Partial<GrpcClientOptions>): CaClient {
  const made = new CaClient({
    address: `https://127.0.0.1:${port}`,
    rootCa: 'SYSTEM',
    altHostname: null,
    authToken: 'token',
    clusterId: 'c1',
    headers: {},
    maxReceiveBytes: MAX_ANSWER_BYTES,
    ...options,
  });
  t.teardown(() => made.close());
  return made;
}

const ask = { csr: 'x', validitySeconds: 0, impersonated: null };

test('every request carries the token as it is then, the cluster and the extra headers', async (t) => {
  const kit = await createCaKit(t, { pods: null });
  const ca = await authority();
  const server = await serveEcho(t, await ca.serve([{ kind: 'ip', value: '127.0.0.1' }]));
  const tokenPath = join(kit.dir, 'token');
  await writeFile(tokenPath, 'first\n');
  const caller = client(t, server.port, {
    rootCa: ca.pem,
    authToken: tokenPath,
    headers: { 'x-team': 'mesh' },
  });
  await caller.createCertificate(ask, never);
  await writeFile(tokenPath, 'second');
  await caller.createCertificate(ask, never);
  t.like(server.seen[0], { authorization: 'Bearer first', clusterid: 'c1', 'x-team': 'mesh' });
  t.like(server.seen[1], { authorization: 'Bearer second' });
  await writeFile(tokenPath, '');
  const error = await t.throwsAsync(() => caller.createCertificate(ask, never), {
    instanceOf: MeshError,
  });
  t.is(error?.code, 'IDENTITY_TOKEN');
  t.regex(error?.message ?? '', /is empty/);
});

test('the server must have the host name or the alternative one', async (t) => {
  const ca = await authority();
  const server = await serveEcho(t, await ca.serve([{ kind: 'dns', value: 'istiod.test' }]));
  const refused = await t.throwsAsync(
    () => client(t, server.port, { rootCa: ca.pem }).createCertificate(ask, never),
    { instanceOf: MeshError },
  );
  t.is(refused?.code, 'IDENTITY_UNAVAILABLE');
  t.regex(
    refused?.message ?? '',
    /127\.0\.0\.1 is not in the cert's list|does not match certificate/,
  );
  await client(t, server.port, { rootCa: ca.pem, altHostname: 'istiod.test' }).createCertificate(
    ask,
    never,
  );
  const other = await authority();
  await t.throwsAsync(
    () =>
      client(t, server.port, { rootCa: other.pem, altHostname: 'istiod.test' }).createCertificate(
        ask,
        never,
      ),
    { message: /self-signed|unable to verify|unable to get/ },
  );
});

test('roots are read for every connection, and a rotated certificate serves the next one', async (t) => {
  const kit = await createCaKit(t, { pods: null });
  const [one, two] = [await authority(), await authority()];
  const names = [{ kind: 'ip', value: '127.0.0.1' }] as const;
  const server = await serveEcho(t, await one.serve(names));
  const path = join(kit.dir, 'bundle.pem');
  await writeFile(path, one.pem);
  const caller = client(t, server.port, { rootCa: path });
  await caller.createCertificate(ask, never);
  server.credentials.rotate(await two.serve(names));
  await caller.createCertificate(ask, never);
  caller.reconnect();
  await t.throwsAsync(() => caller.createCertificate(ask, never), { message: /did not answer/ });
  await writeFile(path, two.pem);
  await until(() => caller.createCertificate(ask, never), { what: 'the new root to be used' });
});

test('TLS 1.3 only', async (t) => {
  const ca = await authority();
  const server = await serveEcho(t, await ca.serve([{ kind: 'ip', value: '127.0.0.1' }]));
  const socket = connectTls({
    port: server.port,
    host: '127.0.0.1',
    ca: ca.pem,
    maxVersion: 'TLSv1.2',
    ALPNProtocols: ['h2'],
  });
  t.teardown(() => socket.destroy());
  const [error] = (await once(socket, 'error')) as [Error];
  t.regex(error.message, /protocol version/);
});

test('plain http and nonsense are refused as addresses', (t) => {
  for (const [address, code] of [
    ['http://127.0.0.1:15010', 'CONFIG_UNSUPPORTED'],
    ['https://', 'CONFIG_INVALID'],
    ['https://host:1/path', 'CONFIG_INVALID'],
    ['', 'CONFIG_INVALID'],
  ] as const) {
    const error = t.throws(() => client(t, 1, { address }), { instanceOf: MeshError }, address);
    t.is(error?.code, code);
  }
});

async function keeper(
  t: ExecutionContext,
  kit: CaKit,
  lifetimeMs: number,
): Promise<ServingCertKeeper> {
  const made = new ServingCertKeeper(
    {
      ca: {
        address: kit.address(),
        rootCa: kit.bundlePath,
        altHostname: null,
        authToken: await kit.issuer.mint(accountSubject('istio-system', 'istiod')),
        clusterId: 'Kubernetes',
        headers: {},
      },
      meshRoots: { kind: 'file', path: kit.bundlePath },
      stateDir: join(kit.dir, 'control'),
      lifetimeMs,
    },
    { clock: systemClock, log: keptLog('keeper').log },
  );
  t.teardown(() => made.close());
  return made;
}

test('an infrastructure actor gets its server certificate, keeps it, and restarts while the CA is away', async (t) => {
  const kit = await createCaKit(t, { pods: null });
  const ca = await kit.start({ WEFT_CA_SERVING_NAMES: NAMES });
  const first = await keeper(t, kit, 0);
  await first.start();
  const certificate = await first.first(AbortSignal.timeout(60_000));
  const leaf = new X509Certificate(certificate.chainPem);
  t.truthy(leaf.checkHost('istiod.istio-system.svc'));
  t.truthy(leaf.checkIP('127.0.0.1'));
  const path = join(kit.dir, 'control', 'serving.pem');
  t.is((await stat(path)).mode & 0o777, 0o600);
  first.close();
  await ca.stop();
  const second = await keeper(t, kit, 0);
  await second.start();
  t.deepEqual(second.current, certificate);
  const server = await serveEcho(t, certificate);
  const caller = client(t, server.port, { rootCa: kit.bundlePath });
  await caller.createCertificate(ask, never);
});

test('a kept certificate that is damaged or of another root is not used', async (t) => {
  const kit = await createCaKit(t, { pods: null });
  await kit.start({ WEFT_CA_SERVING_NAMES: NAMES });
  const first = await keeper(t, kit, 0);
  await first.start();
  const certificate = await first.first(AbortSignal.timeout(60_000));
  first.close();
  const path = join(kit.dir, 'control', 'serving.pem');
  const good = await readFile(path, 'utf8');
  const foreign = await (await authority()).serve([{ kind: 'ip', value: '127.0.0.1' }]);
  for (const content of [
    '',
    good.slice(0, 300),
    foreign.chainPem + foreign.keyPem,
    foreign.chainPem + certificate.keyPem,
  ]) {
    await writeFile(path, content);
    const next = await keeper(t, kit, 0);
    await next.start();
    t.is(next.current, null);
    await next.first(AbortSignal.timeout(60_000));
    next.close();
  }
});

test('the server certificate is renewed at half of its life and served without a restart', async (t) => {
  const kit = await createCaKit(t, { pods: null });
  await kit.start({ WEFT_CA_SERVING_NAMES: NAMES });
  const kept = await keeper(t, kit, 30_000);
  await kept.start();
  const certificate = await kept.first(AbortSignal.timeout(60_000));
  const server = await serveEcho(t, certificate);
  kept.onChange((next) => server.credentials.rotate(next));
  // It may have changed before.
  if (kept.current !== null) server.credentials.rotate(kept.current);
  const serial = new X509Certificate(certificate.chainPem).serialNumber;
  await until(() => kept.current !== certificate, { what: 'the renewal', timeoutMs: 20_000 });
  const roots = await readFile(kit.bundlePath);
  const socket = connectTls({
    port: server.port,
    host: '127.0.0.1',
    ca: roots,
    ALPNProtocols: ['h2'],
  });
  t.teardown(() => socket.destroy());
  await once(socket, 'secureConnect');
  const served: PeerCertificate = socket.getPeerCertificate();
  t.not(served.serialNumber, serial);
});

test('no certificate is given while the CA refuses, and the reason is at hand', async (t) => {
  const kit = await createCaKit(t, { pods: null });
  const ca = await kit.start();
  await ca.stop();
  const kept = await keeper(t, kit, 0);
  await kept.start();
  const waited = await until(
    async () => {
      const error = await kept.first(AbortSignal.timeout(500)).then(
        () => null,
        (reason: unknown) => asMeshError(reason, 'ACTOR_FAILED'),
      );
      return error === null || /did not answer/.test(error.message) ? { error } : null;
    },
    { what: 'the reason' },
  );
  t.is(waited.error?.code, 'IDENTITY_UNAVAILABLE');
  t.regex(waited.error?.message ?? '', /^no serving certificate yet: the CA at .* did not answer/);
});
