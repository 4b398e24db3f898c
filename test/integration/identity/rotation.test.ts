/** Tests that trust goes on while the CA's root is rotated. */
import { X509Certificate } from 'node:crypto';
import { copyFile, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { parseCertificates } from '../../../lib/tls/pem.ts';
import { abandon, backup, caStatus, rotate, skip } from '../../../services/ca/operations.ts';
import type { CaStatus } from '../../../services/ca/operations.ts';
import { EARLIER_HOLDERS } from '../../../services/ca/holders.ts';
import { OwnAuthority } from '../../../services/ca/own-authority.ts';
import { keptLog } from '../../support/actor-context.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import { startCaProcess } from '../../support/ca-process.ts';
import { startCaNode, startHandshakes } from '../../support/ca-node.ts';
import { until } from '../../support/until.ts';
import { API, PODS, RULES, WEB, ask, rootsIn, storesOf } from '../../support/root-kit.ts';

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
  const settleMs = 6_000;
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
