import { execFile } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { CaClient } from '../../../lib/identity/ca-client.ts';
import { requestFor, toPem } from '../../../lib/identity/csr.ts';
import { uriAltNames } from '../../../lib/identity/peer-verify.ts';
import { acceptCertificate, parseCaAnswer } from '../../../lib/identity/workload-certificate.ts';
import { parseCertificates } from '../../../lib/tls/pem.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import { nodePod, podObject, servePodsApi } from '../../support/pods-api.ts';
import { accountSubject, createTokenIssuer, nodeSubject } from '../../support/token-issuer.ts';
import { until } from '../../support/until.ts';

const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
const API = 'spiffe://cluster.local/ns/demo/sa/api';
const never = new AbortController().signal;

interface Ask {
  readonly identity?: string | null;
  readonly csr?: string;
  readonly seconds?: number;
}

async function ask(
  client: CaClient,
  { identity = WEB, csr, seconds = 86_400 }: Ask = {},
): Promise<readonly string[]> {
  return client.createCertificate(
    {
      csr: csr ?? (await requestFor(identity ?? WEB)).csrPem,
      validitySeconds: seconds,
      impersonated: identity,
    },
    never,
  );
}

test('a node gets a certificate for a pod it runs, as upstream lays it out', async (t) => {
  const kit = await createCaKit(t);
  const ca = await kit.start();
  const client = await kit.client();
  const { key, csrPem } = await requestFor(WEB);
  const before = Date.now();
  const chain = await until(() => ask(client, { csr: csrPem }), { what: 'pods to be known' });
  t.is(chain.length, 2);
  const rootsPem = await readFile(kit.bundlePath, 'utf8');
  t.is(chain.at(-1), rootsPem);
  const roots = { pem: rootsPem, certificates: parseCertificates(rootsPem, 'roots') };
  const { certificate, unknownRoots } = acceptCertificate(
    { identity: WEB, key },
    chain,
    roots,
    Date.now(),
  );
  t.deepEqual(unknownRoots, []);
  // Times in certificates are whole seconds.
  t.true(certificate.notAfterMs > before + 86_400_000 - 1_000);
  t.true(certificate.notAfterMs <= Date.now() + 86_400_000);
  t.true(certificate.notBeforeMs > before - 120_000 - 1_000);
  t.true(certificate.notBeforeMs <= Date.now() - 120_000);
  t.regex(await ca.metrics(), /citadel_server_success_cert_issuance_count 1/);
  const record = ca.lines.find((line) => line.message === 'certificate.issued');
  t.is(record?.['serial'], certificate.serialNumber);
  t.is(record?.['identity'], WEB);
  t.is(record?.['caller'], 'istio-system/ztunnel');
  t.is(record?.['pod'], 'ztunnel-node-1');
  t.is(record?.['node'], 'node-1');
  t.true(
    ca.lines.some((line) => line.message === 'certificate.issued' && line['identity'] === WEB),
  );
});

test('the CSR decides nothing but the key: its names are overwritten', async (t) => {
  const kit = await createCaKit(t);
  await kit.start();
  const client = await kit.client();
  const { csrPem } = await requestFor('spiffe://cluster.local/ns/kube-system/sa/admin');
  const chain = await until(() => ask(client, { csr: csrPem }), { what: 'pods to be known' });
  t.deepEqual(uriAltNames(parseCaAnswer(chain).leaf.subjectAltName), [WEB]);
});

test('without impersonation a caller gets its own identity, and the server names of its account', async (t) => {
  const kit = await createCaKit(t);
  await kit.start({
    WEFT_CA_SERVING_NAMES: 'istio-system/istiod=istiod.istio-system.svc,10.200.0.2,fd00:200::2',
  });
  const istiod = await kit.client(await kit.issuer.mint(accountSubject('istio-system', 'istiod')));
  const served = parseCaAnswer(await ask(istiod, { identity: null })).leaf;
  t.deepEqual(uriAltNames(served.subjectAltName), [
    'spiffe://cluster.local/ns/istio-system/sa/istiod',
  ]);
  t.truthy(served.checkHost('istiod.istio-system.svc'));
  t.truthy(served.checkIP('10.200.0.2'));
  t.truthy(served.checkIP('fd00:200::2'));
  const other = await kit.client(await kit.issuer.mint(accountSubject('demo', 'web')));
  const plain = parseCaAnswer(await ask(other, { identity: null })).leaf;
  t.is(plain.subjectAltName, `URI:${WEB}`);
});

test('what a token may not do, it is refused without being told why, but for a clock that is off', async (t) => {
  const kit = await createCaKit(t);
  const ca = await kit.start();
  const { issuer } = kit;
  const good = await kit.client();
  await until(() => ask(good), { what: 'pods to be known' });
  const stranger = createTokenIssuer(issuer.issuer);
  const node = nodeSubject('node-1');
  const cases: readonly (readonly [string, string, Ask, string, RegExp, RegExp?])[] = [
    [
      'identity of another node',
      await issuer.mint(node),
      { identity: API },
      'no_such_pod',
      /no pod of demo\/api runs on node-1/,
    ],
    [
      'identity that no pod has',
      await issuer.mint(node),
      { identity: 'spiffe://cluster.local/ns/demo/sa/none' },
      'no_such_pod',
      /runs on node-1/,
    ],
    [
      'foreign trust domain',
      await issuer.mint(node),
      { identity: 'spiffe://evil.test/ns/demo/sa/web' },
      'foreign_trust_domain',
      /evil\.test/,
    ],
    [
      'no identity',
      await issuer.mint(node),
      { identity: 'demo/web' },
      'bad_identity',
      /is no identity/,
    ],
    [
      'account that is not trusted',
      await issuer.mint(accountSubject('demo', 'web')),
      {},
      'untrusted_caller',
      /demo\/web is not a trusted/,
    ],
    [
      'token without a node',
      await issuer.mint({ ...node, node: null, pod: null }),
      {},
      'unknown_node',
      /names no node/,
    ],
    [
      'token of a pod that is gone',
      await issuer.mint({ ...node, pod: { name: 'ztunnel-node-1', uid: 'before' } }),
      {},
      'unknown_caller_pod',
      /\(uid before\) of the token does not exist/,
    ],
    [
      'wrong audience',
      await issuer.mint(node, { audience: 'vault' }),
      {},
      'bad_token',
      /audience is "vault", wanted istio-ca/,
    ],
    [
      'other issuer',
      await issuer.mint(node, { issuer: 'https://other' }),
      {},
      'bad_token',
      /issuer is "https:\/\/other"/,
    ],
    [
      'expired token',
      await issuer.mint(node, { issuedAtMs: Date.now() - 7_200_000 }),
      {},
      'bad_token',
      /expired at/,
      /authenticate failure: .* it expired at \S+, \d+ s ago \(the time here is/,
    ],
    [
      'token of the future',
      await issuer.mint(node, { issuedAtMs: Date.now() + 600_000 }),
      {},
      'bad_token',
      /not valid before/,
      /authenticate failure: .*, \d+ s from now .*the clocks here and at its issuer differ/,
    ],
    ['unknown key', await stranger.mint(node), {}, 'bad_token', /unknown key/],
    ['no token at all', 'garbage', {}, 'bad_token', /refused/],
  ];
  for (const [what, token, request, reason, logged, told] of cases) {
    const client = await kit.client(token);
    const error = await t.throwsAsync(() => ask(client, request), { instanceOf: MeshError }, what);
    t.is(error?.code, 'IDENTITY_REFUSED', what);
    t.regex(
      error?.message ?? '',
      told ?? /request (impersonation authentication|authenticate) failure$/,
      what,
    );
    const line = ca.lines.findLast((entry) => entry.message === 'certificate.request-refused');
    t.is(line?.['reason'], reason, what);
    t.regex(String(line?.['detail']), logged, what);
    const known = reason === 'bad_token' ? null : /^(istio-system\/ztunnel|demo\/web)$/;
    if (known === null) t.is(line?.['caller'], null, what);
    else t.regex(String(line?.['caller']), known, what);
  }
  t.regex(await ca.metrics(), /weft_ca_refusals_total\{reason="no_such_pod"\} 2/);
  t.regex(await ca.metrics(), /citadel_server_authentication_failure_count 12/);
});

test('a request that makes no sense is refused with the reason', async (t) => {
  const kit = await createCaKit(t);
  const ca = await kit.start({ MAX_WORKLOAD_CERT_TTL: '48h' });
  const client = await kit.client();
  await until(() => ask(client), { what: 'pods to be known' });
  const cases: readonly (readonly [Ask, RegExp])[] = [
    [{ csr: 'nonsense' }, /not a PEM certificate request/],
    [
      { csr: '-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----' },
      /DER|CSR/,
    ],
    [{ seconds: 48 * 3600 + 1 }, /requested TTL 172801s is greater/],
  ];
  for (const [request, message] of cases) {
    const error = await t.throwsAsync(() => ask(client, request), { instanceOf: MeshError });
    t.is(error?.code, 'IDENTITY_INVALID');
    t.regex(error?.message ?? '', message);
  }
  t.regex(await ca.metrics(), /citadel_server_csr_parsing_err_count 2/);
  t.regex(await ca.metrics(), /citadel_server_csr_sign_err_count\{error="bad_ttl"\} 1/);
  const short = parseCaAnswer(await ask(client, { seconds: 60 })).leaf;
  t.true(short.validToDate.getTime() - Date.now() < 62_000);
  const standard = parseCaAnswer(await ask(client, { seconds: 0 })).leaf;
  t.true(standard.validToDate.getTime() - Date.now() > 23 * 3_600_000);
});

test('a changed, weak or foreign request signs nothing, and a replayed one helps nobody else', async (t) => {
  const kit = await createCaKit(t);
  const ca = await kit.start();
  const client = await kit.client();
  await until(() => ask(client), { what: 'pods to be known' });
  const { csrPem } = await requestFor(WEB);
  const der = Buffer.from(csrPem.replaceAll(/-----[^-]+-----|\s/g, ''), 'base64');
  const at = der.indexOf('sa/web');
  der.write('sa/api', at);
  const tampered = toPem('CERTIFICATE REQUEST', der);
  const cases: readonly (readonly [string, string, RegExp])[] = [
    ['changed name', tampered, /not signed by the key it names/],
    ['cut short', toPem('CERTIFICATE REQUEST', der.subarray(0, 60)), /DER|cut short/],
    ['weak key', await opensslRequest(['-newkey', 'rsa:1024']), /1024 bits/],
    [
      'foreign curve',
      await opensslRequest(['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:secp256k1']),
      /secp256k1/,
    ],
    [
      'authority',
      await opensslRequest(['-newkey', 'rsa:2048', '-addext', 'basicConstraints=CA:TRUE']),
      /certificate of an authority/,
    ],
  ];
  for (const [what, csr, told] of cases) {
    const error = await t.throwsAsync(() => ask(client, { csr }), { instanceOf: MeshError }, what);
    t.is(error?.code, 'IDENTITY_INVALID', what);
    t.regex(error?.message ?? '', told, what);
    const line = ca.lines.findLast((entry) => entry.message === 'certificate.request-refused');
    t.is(line?.['reason'], 'bad_csr', what);
    t.is(line?.['identity'], WEB, what);
    t.is(line?.['caller'], 'istio-system/ztunnel', what);
  }
  // A thief of another node's request has neither its key nor the right to its identity.
  const thief = await kit.client(await kit.nodeToken('node-2'));
  await ask(client, { csr: csrPem });
  const stolen = await t.throwsAsync(() => ask(thief, { csr: csrPem }), { instanceOf: MeshError });
  t.is(stolen?.code, 'IDENTITY_REFUSED');
  const issued = parseCaAnswer(await ask(thief, { csr: csrPem, identity: API }));
  t.deepEqual(uriAltNames(issued.leaf.subjectAltName), [API], 'never the name in the request');
});

/** A request of a new key by openssl. */
async function opensslRequest(args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('openssl', [
    'req',
    '-new',
    '-nodes',
    '-subj',
    '/',
    '-keyout',
    '/dev/null',
    ...args,
  ]);
  return stdout;
}

test('the root is made once, readable by the owner only, and kept over restarts', async (t) => {
  const kit = await createCaKit(t);
  const first = await kit.start();
  const root = await readFile(kit.bundlePath, 'utf8');
  t.is((await stat(join(kit.dir, 'state', 'authority-1.json'))).mode & 0o777, 0o600);
  t.is((await stat(join(kit.dir, 'state'))).mode & 0o777, 0o700);
  t.is((await stat(kit.bundlePath)).mode & 0o777, 0o644);
  t.is((await stat(join(kit.dir, 'roots'))).mode & 0o777, 0o755);
  await first.stop();
  await kit.start();
  t.is(await readFile(kit.bundlePath, 'utf8'), root);
  const client = await kit.client();
  await until(() => ask(client), { what: 'pods to be known' });
});

test('a damaged root stops the start; nothing is put in its place', async (t) => {
  const kit = await createCaKit(t);
  await mkdir(join(kit.dir, 'state'));
  const path = join(kit.dir, 'state', 'authority-1.json');
  await writeFile(path, 'damaged');
  const error = await t.throwsAsync(() => kit.start(), { instanceOf: MeshError });
  t.is(error?.code, 'STATE_INVALID');
  t.true(error?.message.includes(path));
  t.is(await readFile(path, 'utf8'), 'damaged');
});

test('pods are followed, and remembered while the control plane is away', async (t) => {
  const kit = await createCaKit(t, { pods: [] });
  const ca = await kit.start();
  const client = await kit.client();
  await until(() => ca.lines.some((line) => line.message === 'pods.synced'), {
    what: 'pods to be known',
  });
  await t.throwsAsync(() => ask(client), { message: /impersonation/ });
  const web = podObject('demo', 'web-1', { node: 'node-1', account: 'web' });
  kit.pods?.send({ type: 'ADDED', object: { nonsense: true } });
  kit.pods?.send({ type: 'ADDED', object: web });
  await until(() => ask(client), { what: 'the new pod to be known' });
  await kit.pods?.close();
  kit.pods = null;
  await ask(client);
  await ca.stop();
  const again = await kit.start();
  await ask(await kit.client());
  kit.pods = await servePodsApi(kit.podsSocket, [
    nodePod('node-1'),
    { ...web, status: { phase: 'Failed' } },
  ]);
  await until(() => again.lines.some((line) => line.message === 'pods.synced'), {
    what: 'the control plane to be back',
  });
  await t.throwsAsync(async () => ask(await kit.client()), { message: /impersonation/ });
});

test('while pods have never been known every node is refused, and the log says so', async (t) => {
  const kit = await createCaKit(t, { pods: null });
  const ca = await kit.start();
  const client = await kit.client();
  const error = await t.throwsAsync(() => ask(client), { instanceOf: MeshError });
  t.is(error?.code, 'IDENTITY_REFUSED');
  const line = ca.lines.find((entry) => entry.message === 'certificate.request-refused');
  t.is(line?.['reason'], 'no_pod_registry');
  t.regex(await ca.metrics(), /weft_ca_pod_registry_synced 0/);
});

test('an incomplete plugged-in set refuses to start and names what is missing', async (t) => {
  const kit = await createCaKit(t);
  const dir = join(kit.dir, 'plugged');
  await mkdir(dir);
  await writeFile(join(dir, 'ca-cert.pem'), 'x');
  const error = await t.throwsAsync(() => kit.start({ ROOT_CA_DIR: dir }), {
    instanceOf: MeshError,
  });
  t.is(error?.code, 'CONFIG_INVALID');
  t.regex(error?.message ?? '', /lacks ca-key\.pem, cert-chain\.pem, root-cert\.pem/);
});

test('a plugged-in intermediate signs, and its chain goes with the leaf', async (t) => {
  const { createRoot, issueIntermediate } = await import('../../../lib/identity/x509.ts');
  const { generateKeyPairSync } = await import('node:crypto');
  const kit = await createCaKit(t);
  const dir = join(kit.dir, 'plugged');
  await mkdir(dir);
  const now = Date.now();
  const root = await createRoot('acme', now - 1_000, now + 3_600_000);
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const middle = await issueIntermediate(
    { certificate: new X509Certificate(root.certificatePem), key: root.key },
    keys.publicKey,
    'acme 2',
    { notBeforeMs: now - 1_000, notAfterMs: now + 1_800_000 },
  );
  await writeFile(join(dir, 'ca-cert.pem'), middle);
  await writeFile(
    join(dir, 'ca-key.pem'),
    keys.privateKey.export({ format: 'pem', type: 'pkcs8' }),
  );
  await writeFile(join(dir, 'root-cert.pem'), root.certificatePem);
  await writeFile(join(dir, 'cert-chain.pem'), middle);
  await kit.start({ ROOT_CA_DIR: dir });
  const client = await kit.client();
  const chain = await until(() => ask(client), { what: 'pods to be known' });
  t.is(chain.length, 3);
  t.true(chain.every((element) => element.endsWith('\n')));
  t.is(chain[2], root.certificatePem);
  const { leaf } = parseCaAnswer(chain);
  t.true(leaf.validToDate.getTime() <= now + 1_800_000, 'clamped to the life of the chain');
});
