/** Tests the CA on a real API server. */
import { X509Certificate, createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { SignJWT, decodeJwt, decodeProtectedHeader } from 'jose';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { toPem } from '../../lib/identity/csr.ts';
import { uriAltNames } from '../../lib/identity/peer-verify.ts';
import { createRoot, issueIntermediate } from '../../lib/identity/x509.ts';
import { ifPresent } from '../../lib/kubernetes/status.ts';
import { caStatus, init, restore, backup, rotate } from '../../services/ca/operations.ts';
import { HolderMaps } from '../../services/ca/kubernetes/holder-maps.ts';
import type { Holder } from '../../services/ca/holders.ts';
import { TokenReviews } from '../../lib/identity/token-reviews.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { issueCrl } from '../support/crl-kit.ts';
import { until } from '../support/until.ts';
import { boundToken, caCluster } from './support/ca.ts';
import type { CaCluster } from './support/ca.ts';
import type { Cluster, TestObject } from './support/cluster.ts';
import { kubernetesSuite } from './support/suite.ts';

interface Mesh {
  readonly ca: CaCluster;
  /** The namespace of the workloads. */
  readonly apps: string;
  /** A token of the proxy on node-1, bound to its pod. */
  readonly nodeToken: string;
  readonly web: string;
  readonly api: string;
}

/** Two nodes: web runs on node-1, api on node-2. */
async function mesh(t: ExecutionContext, cluster: Cluster): Promise<Mesh> {
  const ca = await caCluster(t, cluster);
  const apps = await ca.namespace('apps');
  const [proxy] = await cluster.apply(
    ca.pod(ca.system, 'ztunnel', 'node-1'),
    ca.pod(apps, 'web', 'node-1'),
    ca.pod(apps, 'api', 'node-2'),
  );
  const identity = (account: string): string => `spiffe://cluster.local/ns/${apps}/sa/${account}`;
  return {
    ca,
    apps,
    nodeToken: await boundToken(cluster, proxy),
    web: identity('web'),
    api: identity('api'),
  };
}

/** The token as the API server would have signed it so many seconds ago. */
async function aged(cluster: Cluster, token: string, seconds: number): Promise<string> {
  const key = await readFile(join(cluster.server.directory, 'sa.key'), 'utf8');
  const { iat = 0, nbf = 0, exp = 0, ...claims } = decodeJwt(token);
  const times = { iat: iat - seconds, nbf: nbf - seconds, exp: exp - seconds };
  return new SignJWT({ ...claims, ...times })
    .setProtectedHeader({ alg: 'ES256', ...decodeProtectedHeader(token) })
    .sign(createPrivateKey(key));
}

const rootsMap = (namespace: string, pem?: string): TestObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'istio-ca-root-cert', namespace },
  ...(pem === undefined ? {} : { data: { 'root-cert.pem': pem } }),
});

async function rootsOf(cluster: Cluster, namespace: string): Promise<string | null> {
  const found = await ifPresent(cluster.get(rootsMap(namespace)));
  return (found?.['data'] as Record<string, string> | undefined)?.['root-cert.pem'] ?? null;
}

const secretOf = (namespace: string, name: string, files: Record<string, string>): TestObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  type: name === 'cacerts' ? 'Opaque' : 'istio.io/ca-root',
  metadata: { name, namespace },
  data: Object.fromEntries(
    Object.entries(files).map(([key, text]) => [key, Buffer.from(text).toString('base64')]),
  ),
});

const HOUR_MS = 3_600_000;

await kubernetesSuite('ca', (test) => {
  test('signs for the pods of the caller’s node, and publishes its roots', async (t, cluster) => {
    const { ca, apps, nodeToken, web, api } = await mesh(t, cluster);
    const foreign = await ca.namespace('foreign');
    await cluster.apply(rootsMap(foreign, 'of a running istiod'));
    const { actor, ask } = await ca.start();
    const { leaf, roots } = await ask(nodeToken, web);
    t.deepEqual(uriAltNames(leaf.subjectAltName), [web]);
    const [root] = roots;
    t.true(root !== undefined && leaf.checkIssued(root));
    const bundle = await until(() => rootsOf(cluster, apps), { what: 'the roots in a namespace' });
    t.is(bundle, String(root));

    const refusals: readonly (readonly [string, string, string, string, RegExp?])[] = [
      ['identity of another node', nodeToken, api, 'no_such_pod'],
      [
        'wrong audience',
        await cluster.token(ca.system, 'ztunnel', { audiences: ['kubernetes'] }),
        web,
        'bad_token',
      ],
      [
        'account that is not trusted',
        await cluster.token(apps, 'web', { audiences: ['istio-ca'] }),
        api,
        'untrusted_caller',
      ],
      ['tampered token', `${nodeToken.slice(0, -8)}AAAAAAAA`, web, 'bad_token'],
      [
        'expired token',
        await aged(cluster, nodeToken, 7_200),
        web,
        'bad_token',
        /expired.* it expired \d+ s ago \(the time here is /,
      ],
      [
        'token of ten minutes from now',
        await aged(cluster, nodeToken, -600),
        web,
        'bad_token',
        /it is valid in \d+ s .*the clocks here and at its issuer differ/,
      ],
    ];
    for (const [what, token, identity, reason, detail = /./] of refusals) {
      const error = await t.throwsAsync(
        () => ask(token, identity),
        { instanceOf: MeshError },
        what,
      );
      t.is(error?.code, 'IDENTITY_REFUSED', what);
      const line = actor.lines.findLast((entry) => entry.message === 'certificate.request-refused');
      t.is(line?.['reason'], reason, what);
      t.regex(String(line?.['detail']), detail, what);
    }

    const late = await ca.namespace('late');
    await until(() => rootsOf(cluster, late), { what: 'the roots in a new namespace' });
    await cluster.delete(rootsMap(late));
    await until(() => rootsOf(cluster, late), { what: 'deleted roots to be back' });
    t.is(await rootsOf(cluster, foreign), 'of a running istiod');
    t.regex(await actor.metrics(), /weft_ca_foreign_root_maps 1/);

    // A pod that is gone takes its identity, and the token that is bound to it, along.
    await cluster.delete(ca.pod(apps, 'web', 'node-1'));
    await until(
      () =>
        ask(nodeToken, web).then(
          () => null,
          () => true,
        ),
      { what: 'web to be gone' },
    );
    await cluster.delete(ca.pod(ca.system, 'ztunnel', 'node-1'));
    await until(
      async () => {
        await t.throwsAsync(() => ask(nodeToken, null));
        const line = actor.lines.findLast(
          (entry) => entry.message === 'certificate.request-refused',
        );
        return /unknown_caller_pod|bad_token/.test(String(line?.['reason']));
      },
      { what: 'the proxy to be gone' },
    );
  });

  test('several processes share one root, rotate it once, and survive the loss of its Secret', async (t, cluster) => {
    const { ca, apps, nodeToken, web } = await mesh(t, cluster);
    const [first, second] = await Promise.all([ca.start(), ca.start()]);
    const roots = (await first.ask(nodeToken, web, 2)).roots.map(String);
    t.deepEqual((await second.ask(nodeToken, web, 2)).roots.map(String), roots, 'one root');
    const { stores, config } = await ca.state();
    const copy = await backup(stores.state, Date.now());
    await rotate(stores.state, config, Date.now());
    await until(async () => (await caStatus(config, stores, Date.now())).rotation === null, {
      what: 'the old root to retire',
    });
    const rotated = await until(
      async () => {
        const { leaf, roots: now } = await second.ask(nodeToken, web, 2);
        const [only, ...others] = now;
        const signs = only !== undefined && others.length === 0 && leaf.checkIssued(only);
        return signs && String(only) !== roots[0] ? String(only) : null;
      },
      { what: 'the other process to sign with the new root' },
    );
    await until(async () => (await rootsOf(cluster, apps)) === rotated, { what: 'the new roots' });
    const steps = [first, second].flatMap(({ actor }) =>
      actor.lines.filter((line) => line.message === 'root-rotation.stepped'),
    );
    // Any of the processes may lead, one after the other.
    t.is(steps.length, 3);
    t.deepEqual(
      new Set(steps.map((line) => line['to'])),
      new Set(['distribute', 'sign', 'retired']),
    );

    const kept = await backup(stores.state, Date.now());
    await cluster.delete(secretOf(ca.system, 'istio-ca-secret', {}));
    await until(() => first.actor.lines.some((line) => line.message === 'authority.unusable'), {
      what: 'the loss to be told',
    });
    await first.ask(nodeToken, web);
    await until(() => rootsOf(cluster, apps), { what: 'roots' });
    await cluster.apply(rootsMap(ca.system, rotated));
    const refused = await t.throwsAsync(() => ca.start(), { instanceOf: MeshError });
    t.regex(refused?.message ?? '', /ConfigMap \S+ holds the roots.*weft ca init --replace-root/);
    const choice = { replaceRoot: false, nowMs: Date.now() };
    await t.throwsAsync(() => restore(stores, copy, choice), {
      message: /do not include the root/,
    });
    await t.throwsAsync(() => init(stores, config, choice), { message: /holds the roots/ });
    await restore(stores, kept, choice);
    const third = await ca.start();
    t.is(String((await third.ask(nodeToken, web)).roots[0]), rotated, 'trust continues');
  });

  test('the root of an istiod before goes on, and a plugged-in certificate is taken and followed without a restart', async (t, cluster) => {
    const { ca, apps, nodeToken, web } = await mesh(t, cluster);
    const now = Date.now();
    const { certificatePem, key } = await createRoot('old', now - HOUR_MS, now + HOUR_MS);
    const keyPem = key.export({ format: 'pem', type: 'pkcs8' });
    await cluster.apply(
      secretOf(ca.system, 'istio-ca-secret', {
        'ca-cert.pem': certificatePem,
        'ca-key.pem': keyPem,
        'cert-chain.pem': '',
        'key.pem': '',
        'root-cert.pem': certificatePem,
      }),
    );
    const { actor, ask } = await ca.start();
    t.is(String((await ask(nodeToken, web)).roots[0]), certificatePem);

    const root = { certificate: new X509Certificate(certificatePem), key };
    const crl = toPem('X509 CRL', await issueCrl(root, { revoked: [] }));
    const plug = async (name: string, issuer = root): Promise<X509Certificate> => {
      const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const validity = { notBeforeMs: now - HOUR_MS, notAfterMs: now + HOUR_MS };
      const pem = await issueIntermediate(issuer, keys.publicKey, name, validity);
      await cluster.apply(
        secretOf(ca.system, 'cacerts', {
          'ca-cert.pem': pem,
          'ca-key.pem': keys.privateKey.export({ format: 'pem', type: 'pkcs8' }),
          'cert-chain.pem': pem,
          'root-cert.pem': String(issuer.certificate),
          'ca-crl.pem': crl,
        }),
      );
      return new X509Certificate(pem);
    };
    const signs = (by: X509Certificate, what: string): Promise<unknown> =>
      until(async () => (await ask(nodeToken, web)).leaf.checkIssued(by), { what });
    const refused = (): readonly string[] =>
      actor.lines
        .filter(({ message }) => message === 'authority.unusable')
        .map((line) => String(line['problem']));
    const other = await createRoot('other', now - HOUR_MS, now + HOUR_MS);
    const stranger = { certificate: new X509Certificate(other.certificatePem), key: other.key };
    await plug('of another root', stranger);
    await until(() => refused().length === 1, { what: 'the foreign roots to be refused' });
    t.regex(refused()[0] ?? '', /Secret \S+\/cacerts share none with those in force/);
    t.is(String((await ask(nodeToken, web)).roots[0]), certificatePem, 'the own root stays');
    t.regex(await actor.metrics(), /weft_ca_source_usable 0/);
    await signs(await plug('one'), 'the plugged-in intermediate to sign');
    await plug('of another root', stranger);
    await until(() => refused().length === 2, { what: 'the change of all roots to be refused' });
    const two = await plug('two');
    await signs(two, 'the second intermediate to sign');
    t.regex(await actor.metrics(), /weft_ca_source_usable 1/);
    const lists = { ...rootsMap(apps), metadata: { name: 'istio-ca-crl', namespace: apps } };
    const spread = await until(() => ifPresent(cluster.get(lists)), { what: 'the lists' });
    t.deepEqual(spread['data'], { 'ca-crl.pem': crl });
    const { stores, config } = await ca.state();
    t.is((await caStatus(config, stores, Date.now())).source, `Secret ${ca.system}/cacerts`);
  });

  test('the trust domain of the MeshConfig is that of new certificates, and follows it', async (t, cluster) => {
    const { ca, apps, nodeToken } = await mesh(t, cluster);
    const web = (domain: string): string => `spiffe://${domain}/ns/${apps}/sa/web`;
    await ca.configure('trustDomain: one.example\nenableTracing: true');
    const { actor, ask } = await ca.start();
    const named = async (domain: string): Promise<readonly string[]> =>
      uriAltNames((await ask(nodeToken, web(domain))).leaf.subjectAltName);
    t.deepEqual(await named('one.example'), [web('one.example')]);
    await t.throwsAsync(() => named('cluster.local'), { message: /authentication failure/ });
    await ca.configure('trustDomain: two.example\ntrustDomainAliases: [one.example]');
    await until(() => named('two.example').catch(() => null), { what: 'the new trust domain' });
    t.deepEqual(await named('one.example'), [web('one.example')], 'nodes may still ask for it');
    const own = (await ask(nodeToken, null)).leaf.subjectAltName;
    t.deepEqual(uriAltNames(own), [`spiffe://two.example/ns/${ca.system}/sa/ztunnel`]);
    await ca.configure('trustDomain: two words');
    const refused = await until(
      () => actor.lines.find(({ message }) => message === 'mesh-config.refused'),
      { what: 'the bad trust domain to be told' },
    );
    t.regex(String(refused['error']), /ConfigMap \S+\/istio, mesh, trustDomain: must consist of/);
    await named('two.example');
    await ca.configure();
    await until(() => named('cluster.local').catch(() => null), { what: 'the default' });
    await t.throwsAsync(() => named('one.example'), { message: /authentication failure/ });
  });

  test('the roots go to the namespaces that the discovery selectors select, and follow them', async (t, cluster) => {
    const { ca, apps } = await mesh(t, cluster);
    const other = await cluster.namespace('other', { 'weft-test-too': ca.system });
    await ca.start();
    const roots = await until(() => rootsOf(cluster, apps), { what: 'the roots of the mesh' });
    await until(async () => (await rootsOf(cluster, ca.system)) === roots, {
      what: 'the system namespace, which is no matter of selectors, to have them',
    });
    t.is(await rootsOf(cluster, other), null);
    // A namespace that is relabelled.
    await cluster.apply({
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: other, labels: { 'weft-test': ca.system } },
    });
    await until(async () => (await rootsOf(cluster, other)) === roots, {
      what: 'the roots in the namespace that joined',
    });
    const third = await cluster.namespace('third', { 'weft-test-too': ca.system });
    const fourth = await cluster.namespace('fourth', { 'weft-test': 'nobody' });
    await cluster.apply({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'istio', namespace: ca.system },
      data: {
        mesh: `discoverySelectors: [{matchLabels: {weft-test-too: ${ca.system}}}]\nrootNamespace: ${fourth}`,
      },
    });
    for (const namespace of [third, fourth]) {
      await until(async () => (await rootsOf(cluster, namespace)) === roots, {
        what: `the roots in ${namespace}, which the selectors or the root namespace name now`,
      });
    }
    t.is(await rootsOf(cluster, apps), roots, 'a namespace that is left out keeps what it has');
    await cluster.delete(rootsMap(apps));
    await cluster.delete(rootsMap(third));
    await until(() => rootsOf(cluster, third), { what: 'the roots to be back' });
    t.is(await rootsOf(cluster, apps), null, 'and does not get it again');
  });

  test('a review is believed for a minute, and asked for once', async (t, cluster) => {
    const { nodeToken } = await mesh(t, cluster);
    const via = await cluster.gateway();
    const clock = new FakeClock();
    const reviews = new TokenReviews(['istio-ca'], { client: cluster.client({ via }), clock });
    const [holder, same] = await Promise.all([
      reviews.verify(nodeToken),
      reviews.verify(nodeToken),
    ]);
    t.is(holder, same);
    t.is(holder.serviceAccount.name, 'ztunnel');
    t.is(holder.pod?.name, 'ztunnel-1');
    via.close();
    await clock.advance(59_000);
    t.is(await reviews.verify(nodeToken), holder);
    await clock.advance(1_000);
    const error = await t.throwsAsync(() => reviews.verify(nodeToken), { instanceOf: MeshError });
    t.is(error?.code, 'STATE_UNAVAILABLE');
    via.restore();
    await t.throwsAsync(() => reviews.verify('no.token.at-all'), { message: /token is refused/ });
    t.is(reviews.size, 0);
  });

  test('while the API server is away, reviewed callers go on and others are told to try again', async (t, cluster) => {
    const { ca, nodeToken, web } = await mesh(t, cluster);
    const other = await cluster.token(ca.system, 'ztunnel', { audiences: ['istio-ca'] });
    const via = await cluster.gateway();
    const { ask } = await ca.start({ via });
    await ask(nodeToken, web);
    via.close();
    await ask(nodeToken, web);
    const error = await t.throwsAsync(() => ask(other, web), { instanceOf: MeshError });
    t.is(error?.code, 'IDENTITY_UNAVAILABLE');
    via.restore();
    await until(() => ask(nodeToken, web), { what: 'the CA to go on' });
  });

  test('CA processes that write holders at once lose none, and remove by the stored end', async (t, cluster) => {
    const namespace = await cluster.namespace('holders');
    const [one, two] = [1, 2].map(() => new HolderMaps(cluster.client(), namespace));
    if (one === undefined || two === undefined) throw new Error('there are two');
    // The 19th node shares an object with another.
    const names = Array.from({ length: 19 }, (_, node) => `node-${node}`);
    const holders = (untilMs: number, roots: string[]): Holder[] =>
      names.map((name) => ({ name, roots, untilMs }));
    await Promise.all([
      one.merge(holders(100, ['a']), 0),
      two.merge(holders(200, ['b']), 0),
      two.merge([{ name: 'node-19', roots: null, untilMs: 300 }], 0),
    ]);
    await one.merge(holders(50, ['c']), 0);
    const stored = await two.read();
    t.is(stored.length, 20);
    t.true(stored.every(({ untilMs }) => untilMs >= 200));
    t.is(stored.filter(({ roots }) => roots?.join() === 'c').length, 19);
    await one.merge(holders(250, ['c']).slice(0, 1), 150);
    t.is(
      (await two.read()).length,
      20,
      'the stored end counts, not the one that a process told last',
    );
    await one.merge(holders(400, ['c']), 200);
    t.is((await two.read()).length, 20);
    await one.merge(holders(400, ['c']), 300);
    t.false((await two.read()).some(({ name }) => name === 'node-19'));
  });
});
