import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { CertificateManager } from '../../../../lib/identity/certificate-manager.ts';
import type { Urgency } from '../../../../lib/identity/signing-port.ts';
import type { WorkloadCertificate } from '../../../../lib/identity/workload-certificate.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { CertificateDistributor } from '../../../../services/node-proxy/certificates/certificate-distributor.ts';
import type { ControlToThread } from '../../../../workers/listener/protocol/control.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { until } from '../../../support/until.ts';

const web = 'spiffe://cluster.local/ns/demo/sa/web';
const api = 'spiffe://cluster.local/ns/demo/sa/api';

function setUp(t: ExecutionContext) {
  const clock = new FakeClock();
  const log = createLogger({ actor: 'test', level: 'silent' });
  const asked: [string, Urgency][] = [];
  const refusals = new Map<string, MeshError>();
  const manager = new CertificateManager('node-1', {
    clock,
    log,
    signing: {
      request: (identity, _csr, urgency, { signal }) => {
        asked.push([identity, urgency]);
        const refusal = refusals.get(identity);
        if (refusal !== undefined) return Promise.reject(refusal);
        return new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(signal.reason as Error)),
        );
      },
      raise: (identity, urgency) => asked.push([identity, urgency]),
      hasten: () => undefined,
    },
    bundle: { current: null, onChange: () => () => undefined },
    metrics: { issued: () => undefined, failed: () => undefined, unknownRoot: () => undefined },
  });
  const thread = (number: number, ...accounts: string[]) => {
    const sent: ControlToThread[] = [];
    const pods = new Map(
      accounts.map((serviceAccount) => [
        serviceAccount,
        { info: { uid: serviceAccount, name: serviceAccount, namespace: 'demo', serviceAccount } },
      ]),
    );
    return { number, pods, sent, send: (message: ControlToThread) => void sent.push(message) };
  };
  const threads = [thread(0, 'web'), thread(1, 'api')] as const;
  const distributor = new CertificateDistributor({ manager, log, threads: () => threads });
  t.teardown(() => {
    distributor.close();
    manager.close();
  });
  return { clock, manager, distributor, threads, asked, refusals };
}

test("the node's identities are fetched ahead, those that are gone forgotten unless a pod uses them", (t) => {
  const { manager, distributor } = setUp(t);
  distributor.setLocal([web, 'spiffe://cluster.local/ns/demo/sa/other']);
  t.deepEqual(manager.identities().length, 2);
  distributor.setLocal([]);
  t.deepEqual(manager.identities(), [web], 'a served pod has it');
});

test('an identity a connection waits for is asked for with urgency', async (t) => {
  const { distributor, threads, asked } = setUp(t);
  distributor.setLocal([web]);
  await until(() => asked.length === 1, { what: 'the request ahead' });
  distributor.needed(threads[0], web);
  t.deepEqual(asked, [
    [web, 'warmUp'],
    [web, 'realTime'],
  ]);
  t.deepEqual(threads[0].sent, []);
});

test("an identity of another thread's pod is refused", (t) => {
  const { manager, distributor, threads } = setUp(t);
  distributor.needed(threads[0], api);
  t.like(threads[0].sent, [
    { type: 'certificate.unavailable', identity: api, error: { code: 'IDENTITY_REFUSED' } },
  ]);
  distributor.needed(threads[0], 'nonsense');
  t.is(threads[0].sent.length, 2);
  t.deepEqual(manager.identities(), []);
});

test('a refusal is told to the threads that serve the identity, and to them alone', async (t) => {
  const { distributor, threads, refusals } = setUp(t);
  refusals.set(web, new MeshError('IDENTITY_REFUSED', 'not on this node'));
  distributor.needed(threads[0], web);
  await until(() => threads[0].sent.length > 0, { what: 'the refusal' });
  t.like(threads[0].sent, [{ type: 'certificate.unavailable', identity: web }]);
  t.deepEqual(threads[1].sent, []);
});

test('an identity that was refused is asked for again when a workload of it appears', async (t) => {
  const { clock, distributor, threads, asked, refusals } = setUp(t);
  refusals.set(web, new MeshError('IDENTITY_REFUSED', 'no workload'));
  distributor.needed(threads[0], web);
  for (let refused = 1; refused <= 4; refused += 1) {
    await until(() => threads[0].sent.length === refused, { what: 'the refusal' });
    if (refused < 4) await clock.advance(clock.nextInMs ?? 0);
  }
  await clock.advance(2_000);
  t.is(asked.length, 4, 'the backoff is longer');
  distributor.setLocal([web]);
  await clock.advance(0);
  await until(() => threads[0].sent.length === 5, { what: 'the next refusal' });
  t.deepEqual(asked.at(-1), [web, 'warmUp']);
});

test('a thread is told to forget what none of its pods has any more, once, and is given it anew when one comes', async (t) => {
  const { distributor, threads, manager } = setUp(t);
  const [first, second] = threads;
  const certificate = { identity: web } as WorkloadCertificate;
  manager.status = () => ({ kind: 'available', certificate });
  manager.identities = () => [web];
  distributor.podPlaced(first);
  distributor.podPlaced(second);
  const [pod] = first.pods.values();
  if (pod === undefined) throw new Error('the thread has a pod');
  first.pods.set('twin', pod);
  first.pods.delete('web');
  distributor.forgetUnused();
  await turn();
  t.deepEqual(
    first.sent.map(({ type }) => type),
    ['certificate'],
    'another pod has the identity',
  );
  first.pods.clear();
  distributor.forgetUnused();
  await turn();
  distributor.forgetUnused();
  await turn();
  t.like(first.sent.slice(1), [{ type: 'certificate.drop', identity: web }]);
  t.is(first.sent.length, 2);
  t.deepEqual(second.sent, []);
  first.pods.set('web', pod);
  distributor.podPlaced(first);
  t.is(first.sent.at(-1)?.type, 'certificate');
});

test('pods that end together cost one look at those that are left, however many identities there are', async (t) => {
  const { distributor, threads, manager } = setUp(t);
  const [first] = threads;
  const identities = Array.from(
    { length: 200 },
    (_, n) => `spiffe://cluster.local/ns/demo/sa/n${n}`,
  );
  const forgotten: string[] = [];
  manager.status = (identity) => ({
    kind: 'available',
    certificate: { identity } as WorkloadCertificate,
  });
  manager.identities = () => identities;
  manager.forget = (identity) => void forgotten.push(identity);
  let looks = 0;
  for (let n = 0; n < 200; n += 1) {
    const name = `n${n}`;
    const info = { uid: name, name, namespace: 'demo', serviceAccount: name };
    first.pods.set(name, {
      get info() {
        looks += 1;
        return info;
      },
    });
  }
  distributor.podPlaced(first);
  looks = 0;
  for (let n = 0; n < 150; n += 1) {
    first.pods.delete(`n${n}`);
    distributor.forgetUnused();
  }
  t.is(looks, 0);
  await turn();
  t.is(looks, 50);
  t.deepEqual(forgotten, identities.slice(0, 150));
  t.is(first.sent.filter(({ type }) => type === 'certificate.drop').length, 150);
});

test('a distributor that is closed lets go of nothing more', async (t) => {
  const { distributor, manager } = setUp(t);
  manager.want('spiffe://cluster.local/ns/demo/sa/other', 'warmUp');
  distributor.forgetUnused();
  distributor.close();
  await turn();
  t.is(manager.identities().length, 1);
});
