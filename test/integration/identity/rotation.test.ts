/** Tests that trust goes on while the CA's key changes, is lost, or comes back. */
import { X509Certificate, generateKeyPairSync } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { present } from '../../../lib/errors/assert.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { requestFor } from '../../../lib/identity/csr.ts';
import { parseCaAnswer } from '../../../lib/identity/workload-certificate.ts';
import { createRoot, issueIntermediate } from '../../../lib/identity/x509.ts';
import type { Issuer } from '../../../lib/identity/x509.ts';
import { parseCertificates } from '../../../lib/tls/pem.ts';
import {
  abandon,
  backup,
  caStatus,
  init,
  restore,
  rotate,
  skip,
} from '../../../services/ca/operations.ts';
import type { CaStatus } from '../../../services/ca/operations.ts';
import { EARLIER_HOLDERS } from '../../../services/ca/holders.ts';
import { OwnAuthority } from '../../../services/ca/own-authority.ts';
import { nextState } from '../../../services/ca/rotation.ts';
import { folderStores } from '../../../services/ca/stores.ts';
import type { CaStores } from '../../../services/ca/stores.ts';
import { keptLog } from '../../support/actor-context.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import type { CaKit } from '../../support/ca-kit.ts';
import { startCaProcess } from '../../support/ca-process.ts';
import { startCaNode, startHandshakes } from '../../support/ca-node.ts';
import { nodePod, podObject } from '../../support/pods-api.ts';
import { until } from '../../support/until.ts';

const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
const API = 'spiffe://cluster.local/ns/demo/sa/api';
const PODS = [
  podObject('demo', 'web-1', { node: 'node-1', account: 'web' }),
  podObject('demo', 'api-1', { node: 'node-2', account: 'api' }),
  podObject('demo', 'old-1', { node: 'node-3', account: 'old' }),
  nodePod('node-3'),
];
const never = new AbortController().signal;
const RULES = { trustDomain: 'cluster.local', settleMs: 500 };

function storesOf(kit: CaKit, pluggedDir: string | null = null): CaStores {
  return folderStores(
    { stateDir: join(kit.dir, 'state'), rootBundleFile: kit.bundlePath, pluggedDir },
    { clock: systemClock, log: keptLog('test').log },
  );
}

/** Asks as a proxy does that reports no roots; the leaf. */
async function ask(kit: CaKit, identity: string, seconds: number): Promise<X509Certificate> {
  const node = identity === API ? 'node-2' : identity === WEB ? 'node-1' : 'node-3';
  const client = await kit.client(await kit.nodeToken(node));
  const { csrPem } = await requestFor(identity);
  const chain = await client.createCertificate(
    { csr: csrPem, validitySeconds: seconds, impersonated: identity },
    never,
  );
  client.close();
  return parseCaAnswer(chain).leaf;
}

async function rootsIn(path: string): Promise<string[]> {
  const roots = parseCertificates(await readFile(path, 'utf8'), path);
  return roots.map((root) => root.fingerprint256);
}

test('the own root is rotated in steps that wait for every node, and no connection fails', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const ca = await kit.start({}, { settleMs: RULES.settleMs });
  const stores = storesOf(kit);
  const [old] = await rootsIn(kit.bundlePath);
  // The file of node-2 is behind, as it is while a kubelet has not written the ConfigMap yet.
  const late = join(kit.dir, 'late.pem');
  await copyFile(kit.bundlePath, late);
  const seconds = 20;
  const [web, api] = await Promise.all([
    startCaNode(t, kit, { node: 'node-1', identity: WEB, bundlePath: kit.bundlePath, seconds }),
    startCaNode(t, kit, { node: 'node-2', identity: API, bundlePath: late, seconds }),
  ]);
  const handshakes = await startHandshakes(t, web, api);
  await ask(kit, 'spiffe://cluster.local/ns/demo/sa/old', 3);
  const status = (): Promise<CaStatus> => caStatus(RULES, stores, Date.now());

  await rotate(stores.state, RULES, Date.now());
  await t.throwsAsync(() => rotate(stores.state, RULES, Date.now()), { message: /in progress/ });
  const waiting = await until(
    async () => {
      const found = await status();
      const { rotation } = found;
      return rotation?.missing.join() === 'node-2' && rotation.until === null ? found : null;
    },
    { what: 'the rotation to wait for node-2 alone' },
  );
  t.is(waiting.rotation?.step, 'distribute');
  t.regex(waiting.rotation?.waitsFor ?? '', /1 do not trust the new root yet/);
  t.is((await rootsIn(kit.bundlePath)).length, 2);
  const issuer = (await ask(kit, WEB, 3)).issuer;
  t.is(issuer, new X509Certificate(await readFile(late)).subject, 'the old key signs');

  await copyFile(kit.bundlePath, late);
  await until(async () => (await status()).rotation?.step === 'sign', { what: 'the new key' });
  const kept = await backup(stores.state, Date.now());
  t.is(kept.match(/BEGIN PRIVATE KEY/g)?.length, 1, 'the old key is gone');
  await t.throwsAsync(() => abandon(stores.state), { message: /signs already/ });

  await until(async () => (await status()).rotation === null, { what: 'the old root to retire' });
  await until(async () => (await rootsIn(kit.bundlePath)).length === 1, {
    what: 'the bundle of the new root alone',
  });
  t.notDeepEqual(await rootsIn(kit.bundlePath), [old]);
  await copyFile(kit.bundlePath, late);
  await until(() => parseCertificates(api.current().rootsPem, 'roots').length === 1, {
    what: 'node-2 to forget the old root',
  });
  const before = handshakes.made;
  await until(() => handshakes.made > before + 20, { what: 'connections with the new root alone' });
  t.deepEqual(handshakes.failures, []);
  const steps = ca.lines.filter((line) => line.message === 'root-rotation.stepped');
  t.deepEqual(
    steps.map((line) => line['to']),
    ['distribute', 'sign', 'retired'],
  );
});

test('a CA that ends during a rotation goes on with it, and a rotation can be given up', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const first = await kit.start({}, { settleMs: RULES.settleMs });
  const stores = storesOf(kit);
  const roots = await rootsIn(kit.bundlePath);
  await until(() => ask(kit, WEB, 3_600), { what: 'pods to be known' });
  await rotate(stores.state, RULES, Date.now());
  await first.stop();
  await kit.start({}, { settleMs: RULES.settleMs });
  const found = await until(
    async () => {
      const { rotation } = await caStatus(RULES, stores, Date.now());
      return rotation?.missing.includes('node-1') === true ? rotation : null;
    },
    { what: 'the restarted CA to remember node-1' },
  );
  t.is(found.step, 'distribute');
  await abandon(stores.state);
  await until(async () => (await rootsIn(kit.bundlePath)).join() === roots.join(), {
    what: 'the former bundle',
  });
  t.is((await caStatus(RULES, stores, Date.now())).rotation, null);
});

test('a rotation that is given up while the CA checks it does not begin anew', async (t) => {
  const kit = await createCaKit(t, { pods: null });
  const stores = storesOf(kit);
  let begun = false;
  let ended = false;
  const authority = new OwnAuthority(
    { settleMs: RULES.settleMs, maxLifetimeMs: 0 },
    {
      clock: systemClock,
      log: keptLog('test').log,
      stores,
      holders: {
        live: () => [],
        begin: () => Promise.resolve(),
        takeOver: () => Promise.resolve(),
        // The check has seen the rotation in memory, and reads the state after this.
        async refresh() {
          if (begun) return;
          begun = true;
          await abandon(stores.state);
          ended = true;
        },
      },
      mesh: {
        current: {
          trustDomain: RULES.trustDomain,
          trustDomainAliases: [],
          rootNamespace: null,
          discoverySelectors: [],
        },
      },
      leads: () => true,
    },
  );
  await authority.start();
  await rotate(stores.state, RULES, Date.now());
  await until(() => ended, { what: 'a check to meet the end of the rotation' });
  await authority.close();
  t.is((await caStatus(RULES, stores, Date.now())).rotation, null);
});

test('a CA that is killed in every step of a rotation goes on with it, and no connection fails', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  // Long enough that a step is met before it ends.
  const settleMs = 3_000;
  let ca = await startCaProcess(t, kit, settleMs);
  const stores = storesOf(kit);
  const [old] = await rootsIn(kit.bundlePath);
  const { bundlePath } = kit;
  const [web, api] = await Promise.all([
    startCaNode(t, kit, { node: 'node-1', identity: WEB, bundlePath, seconds: 60 }),
    startCaNode(t, kit, { node: 'node-2', identity: API, bundlePath, seconds: 60 }),
  ]);
  const handshakes = await startHandshakes(t, web, api);
  const step = async (): Promise<string> =>
    (await caStatus(RULES, stores, Date.now())).rotation?.step ?? 'retired';
  await rotate(stores.state, RULES, Date.now());
  const steps = ['prepare', 'distribute', 'sign', 'retired'];
  for (const wanted of steps) {
    await until(async () => (await step()) === wanted, { what: `the step ${wanted}` });
    await ca.kill();
    t.is(await step(), wanted, 'it was killed in this step');
    const { made } = handshakes;
    await until(() => handshakes.made > made + 5, { what: 'connections without a CA' });
    ca = await startCaProcess(t, kit, settleMs);
    const { holders } = await caStatus(RULES, stores, Date.now());
    t.is(holders.count, 2, 'no holder of a certificate is forgotten');
  }
  await until(async () => (await rootsIn(bundlePath)).length === 1, {
    what: 'the bundle of the new root alone',
  });
  t.notDeepEqual(await rootsIn(bundlePath), [old]);
  await until(
    () =>
      [web, api].every((node) => parseCertificates(node.current().rootsPem, 'roots').length === 1),
    { what: 'the nodes to forget the old root' },
  );
  const { made } = handshakes;
  await until(() => handshakes.made > made + 20, { what: 'connections with the new root alone' });
  t.deepEqual(handshakes.failures, []);
});

test('a rotation waits for certificates that were issued before holders were kept', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const stores = storesOf(kit);
  const first = await kit.start({}, { settleMs: RULES.settleMs });
  await first.stop();
  // A start without a certificate in between is no reason.
  const second = await kit.start({}, { settleMs: RULES.settleMs });
  t.is((await caStatus(RULES, stores, Date.now())).holders.count, 0);
  await second.stop();

  // As the folder of a CA has it to which a backup was restored.
  await rm(join(kit.dir, 'state', 'holders.json'));
  const { lines } = await kit.start({}, { settleMs: RULES.settleMs });
  t.deepEqual((await caStatus(RULES, stores, Date.now())).holders, {
    count: 1,
    silent: [EARLIER_HOLDERS],
  });
  t.true(lines.some(({ message }) => message === 'certificate-holders.unknown'));
  await rotate(stores.state, RULES, Date.now());
  await until(
    async () => {
      const { rotation } = await caStatus(RULES, stores, Date.now());
      return rotation?.missing.join() === EARLIER_HOLDERS && rotation.step === 'distribute';
    },
    { what: 'the rotation to wait for them' },
  );
  await skip(stores, [EARLIER_HOLDERS], Date.now());
  await until(async () => (await caStatus(RULES, stores, Date.now())).rotation === null, {
    what: 'the rotation to end without them',
  });
});

test('an operator takes a node that is gone out of those that a rotation waits for', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const ca = await kit.start({}, { settleMs: RULES.settleMs });
  const stores = storesOf(kit);
  const roots = await rootsIn(kit.bundlePath);
  await until(() => ask(kit, WEB, 3_600), { what: 'pods to be known' });
  await rotate(stores.state, RULES, Date.now());
  await until(
    async () => {
      const metrics = await ca.metrics();
      const waits = /^weft_ca_rotation_missing 1$/m.test(metrics);
      return waits && /^weft_ca_rotation_step_seconds\{step="distribute"\} [^0]/m.test(metrics);
    },
    { what: 'the CA to wait for node-1' },
  );
  const unknown = await t.throwsAsync(() => skip(stores, ['node-7'], Date.now()));
  t.regex(unknown?.message ?? '', /node-7: the rotation does not wait/);
  await skip(stores, ['node-1'], Date.now());
  t.deepEqual((await caStatus(RULES, stores, Date.now())).rotation?.skipped, ['node-1']);
  await until(async () => (await caStatus(RULES, stores, Date.now())).rotation === null, {
    what: 'the rotation to end without node-1',
  });
  t.notDeepEqual(await rootsIn(kit.bundlePath), roots);
  const told = ca.lines.filter((line) => line.message === 'root-rotation.holders-skipped');
  t.deepEqual(
    told.map((line) => line['holders']),
    [['node-1']],
  );
});

test('a lost root: the CA goes on from memory, does not start without it, and trusts a backup', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const ca = await kit.start();
  const stores = storesOf(kit);
  const dir = join(kit.dir, 'state');
  await until(() => ask(kit, WEB, 60), { what: 'pods to be known' });
  const copy = await backup(stores.state, Date.now());
  await rm(join(dir, 'authority-1.json'));
  await until(() => ca.lines.some((line) => line.message === 'authority.unusable'), {
    what: 'the loss to be told',
  });
  t.regex(await ca.metrics(), /weft_ca_source_usable 0/);
  await ask(kit, WEB, 60);
  await ca.stop();
  const error = await t.throwsAsync(() => kit.start(), { instanceOf: MeshError });
  t.is(error?.code, 'STATE_INVALID');
  t.regex(error?.message ?? '', /weft ca restore FILE.*weft ca init --replace-root/);
  await t.throwsAsync(() => init(stores, RULES, { replaceRoot: false, nowMs: Date.now() }), {
    message: /holds the roots of a mesh already/,
  });
  const damaged = copy.replace('BEGIN PRIVATE KEY', 'BEGIN NOTHING');
  const choice = { replaceRoot: false, nowMs: Date.now() };
  await t.throwsAsync(() => restore(stores, damaged, choice), { message: /cannot be used/ });
  await t.throwsAsync(() => restore(stores, '{}', choice), { message: /no backup of a CA/ });
  await restore(stores, copy, choice);
  const again = await kit.start();
  t.true(
    (await ask(kit, WEB, 60)).checkIssued(new X509Certificate(await readFile(kit.bundlePath))),
  );
  await again.stop();

  await rm(join(dir, 'authority-1.json'));
  await init(stores, RULES, { replaceRoot: true, nowMs: Date.now() });
  await kit.start();
  await t.throwsAsync(() => restore(stores, copy, choice), {
    message: /do not include the root of this backup/,
  });
});

test('a backup that lacks a root in use is refused, and one of a rotation begins its step anew', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const ca = await kit.start({}, { settleMs: RULES.settleMs });
  const stores = storesOf(kit);
  const choice = { replaceRoot: false, nowMs: Date.now() };
  const former = await backup(stores.state, Date.now());
  // Keeps the step `distribute` from its end.
  await until(() => ask(kit, WEB, 3_600), { what: 'pods to be known' });
  await rotate(stores.state, RULES, Date.now());
  await until(async () => (await rootsIn(kit.bundlePath)).length === 2, { what: 'two roots' });
  await ca.stop();
  const copy = await backup(stores.state, Date.now());
  const { state, version } = present(await stores.state.read(), 'the CA has made it');
  const times = { nowMs: Date.now() + RULES.settleMs, settleMs: RULES.settleMs };
  const signing = nextState(nextState(state, [], times), [], times);
  t.is(signing.rotation?.step, 'sign');
  await stores.state.replace(signing, version);

  const error = await t.throwsAsync(() => restore(stores, former, choice), {
    message: /has a root that this backup lacks.*--replace-root/,
  });
  t.is((error as MeshError).code, 'STATE_CONFLICT');
  const laterMs = Date.now() + 7 * 86_400_000;
  await restore(stores, copy, { replaceRoot: false, nowMs: laterMs });
  const { rotation } = await caStatus(RULES, stores, laterMs);
  t.is(rotation?.step, 'distribute');
  t.is(Date.parse(rotation?.since ?? ''), laterMs, 'its time is not over');
  await restore(stores, former, { ...choice, replaceRoot: true });
  t.is((await caStatus(RULES, stores, Date.now())).rotation, null);
});

test('a root that is lost and brought back under load fails no connection', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const ca = await kit.start();
  const stores = storesOf(kit);
  await until(() => ask(kit, WEB, 60), { what: 'pods to be known' });
  const [web, api] = await Promise.all([
    startCaNode(t, kit, { node: 'node-1', identity: WEB, bundlePath: kit.bundlePath, seconds: 12 }),
    startCaNode(t, kit, { node: 'node-2', identity: API, bundlePath: kit.bundlePath, seconds: 12 }),
  ]);
  const handshakes = await startHandshakes(t, web, api);
  const renewed = async (what: string): Promise<void> => {
    const before = [web, api].map((node) => node.current().chainPem);
    const isNew = (): boolean =>
      [web, api].every((node, index) => node.current().chainPem !== before[index]);
    await until(isNew, { what });
  };
  const copy = await backup(stores.state, Date.now());
  await rm(join(kit.dir, 'state', 'authority-1.json'));
  await until(async () => /weft_ca_source_usable 0/.test(await ca.metrics()), {
    what: 'the loss to be told',
  });
  await renewed('certificates by the key in memory');
  await restore(stores, copy, { replaceRoot: false, nowMs: Date.now() });
  await until(async () => /weft_ca_source_usable 1/.test(await ca.metrics()), {
    what: 'the root to be back',
  });
  await renewed('certificates by the key that is back');
  const { made } = handshakes;
  await until(() => handshakes.made > made + 20, { what: 'connections with them' });
  t.deepEqual(handshakes.failures, []);
});

/** Writes a signing certificate below `root`, as a mounted Secret shows it: all files change at once. */
async function plug(dir: string, issuer: Issuer, rootsPem: string, name: string): Promise<string> {
  const now = Date.now();
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pem = await issueIntermediate(issuer, keys.publicKey, name, {
    notBeforeMs: now - 60_000,
    notAfterMs: now + 3_600_000,
  });
  const next = `${dir}.next`;
  await mkdir(next, { recursive: true });
  await writeFile(join(next, 'ca-cert.pem'), pem);
  await writeFile(
    join(next, 'ca-key.pem'),
    keys.privateKey.export({ format: 'pem', type: 'pkcs8' }),
  );
  await writeFile(join(next, 'root-cert.pem'), rootsPem);
  await writeFile(join(next, 'cert-chain.pem'), pem);
  await swap(next, dir);
  return pem;
}

async function swap(next: string, dir: string): Promise<void> {
  await rm(`${dir}.last`, { recursive: true, force: true });
  if (existsSync(dir)) await rename(dir, `${dir}.last`);
  await rename(next, dir);
}

function subjectOf(pem: string): string {
  return new X509Certificate(pem).subject;
}

async function rooted(
  t: ExecutionContext,
): Promise<{ kit: CaKit; dir: string; root: Issuer; rootsPem: string }> {
  const kit = await createCaKit(t, { pods: PODS });
  const dir = join(kit.dir, 'plugged');
  const now = Date.now();
  const { certificatePem, key } = await createRoot('acme', now - 60_000, now + 7_200_000);
  const root = { certificate: new X509Certificate(certificatePem), key };
  return { kit, dir, root, rootsPem: certificatePem };
}

test('a plugged-in intermediate is replaced without a restart, and no connection fails', async (t) => {
  const { kit, dir, root, rootsPem } = await rooted(t);
  const first = await plug(dir, root, rootsPem, 'first');
  const ca = await kit.start({ ROOT_CA_DIR: dir });
  const [web, api] = await Promise.all(
    [
      { node: 'node-1', identity: WEB },
      { node: 'node-2', identity: API },
    ].map((who) => startCaNode(t, kit, { ...who, bundlePath: kit.bundlePath, seconds: 20 })),
  );
  if (web === undefined || api === undefined) throw new Error('two nodes are started');
  const handshakes = await startHandshakes(t, web, api);
  t.is((await ask(kit, WEB, 60)).issuer, subjectOf(first));

  const second = await plug(dir, root, rootsPem, 'second');
  await until(async () => (await ask(kit, WEB, 60)).issuer === subjectOf(second), {
    what: 'the second intermediate to sign',
  });
  // A set that does not match changes nothing, and says so.
  await writeFile(join(dir, 'ca-cert.pem'), first);
  await until(() => ca.lines.some((line) => line.message === 'authority.unusable'), {
    what: 'the mismatch to be told',
  });
  t.is((await ask(kit, WEB, 60)).issuer, subjectOf(second));
  t.regex(await ca.metrics(), /weft_ca_source_usable 0/);
  await rm(dir, { recursive: true });
  const third = await plug(dir, root, rootsPem, 'third');
  await until(async () => (await ask(kit, WEB, 60)).issuer === subjectOf(third), {
    what: 'the third intermediate to sign',
  });
  t.regex(await ca.metrics(), /weft_ca_source_usable 1/);
  const renewed = (): boolean =>
    [web, api].every(
      (node) => new X509Certificate(node.current().chainPem).issuer === subjectOf(third),
    );
  await until(renewed, { what: 'both nodes to have certificates of the third' });
  const before = handshakes.made;
  await until(() => handshakes.made > before + 20, { what: 'connections with them' });
  t.deepEqual(handshakes.failures, []);
  const status = await caStatus(RULES, storesOf(kit, dir), Date.now());
  t.is(status.source, dir);
  t.deepEqual(
    status.roots.map(({ signs, missing }) => [signs, missing]),
    [[true, []]],
  );
});

test('while the CA is away nothing fails until certificates expire, and then they come back', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const ca = await kit.start();
  await until(() => ask(kit, WEB, 3), { what: 'pods to be known' });
  const [web, api] = await Promise.all([
    startCaNode(t, kit, {
      node: 'node-1',
      identity: WEB,
      bundlePath: kit.bundlePath,
      // Renewal is due after 6 s, so that the CA is away for two of its intervals.
      seconds: 12,
    }),
    startCaNode(t, kit, {
      node: 'node-2',
      identity: API,
      bundlePath: kit.bundlePath,
      seconds: 3_600,
    }),
  ]);
  await ca.stop();
  const { notAfterMs } = web.current();
  const handshakes = await startHandshakes(t, web, api);
  await until(() => handshakes.failures.length > 0, { what: 'the certificate to expire' });
  t.true(Date.now() >= notAfterMs);
  t.true(handshakes.made > 20);
  t.true(
    web.lines.some((line) => line.message === 'certificate.request-failed'),
    'the failing renewals are told before',
  );
  await kit.start();
  const before = handshakes.made;
  await until(() => handshakes.made > before, { what: 'connections with a new certificate' });
});
