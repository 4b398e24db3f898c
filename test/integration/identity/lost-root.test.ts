/** Tests that trust goes on while the CA's root is lost, brought back, or out of reach. */
import { X509Certificate } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { present } from '../../../lib/errors/assert.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { backup, caStatus, init, restore, rotate } from '../../../services/ca/operations.ts';
import { nextState } from '../../../services/ca/rotation.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import { startCaNode, startHandshakes } from '../../support/ca-node.ts';
import { until } from '../../support/until.ts';
import { API, PODS, RULES, WEB, ask, rootsIn, storesOf } from '../../support/root-kit.ts';

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
    startCaNode(t, kit, { node: 'node-1', identity: WEB, bundlePath: kit.bundlePath, seconds: 30 }),
    startCaNode(t, kit, { node: 'node-2', identity: API, bundlePath: kit.bundlePath, seconds: 30 }),
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

test('while the CA is away nothing fails until certificates expire, and then they come back', async (t) => {
  const kit = await createCaKit(t, { pods: PODS });
  const ca = await kit.start();
  await until(() => ask(kit, WEB, 3), { what: 'pods to be known' });
  const [web, api] = await Promise.all([
    startCaNode(t, kit, {
      node: 'node-1',
      identity: WEB,
      bundlePath: kit.bundlePath,
      // Renewal is due after 10 s, so that the CA is away for two of its intervals.
      seconds: 20,
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
