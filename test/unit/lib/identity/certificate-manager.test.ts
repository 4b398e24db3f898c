import { X509Certificate } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import {
  CertificateManager,
  ROOTS_PER_TURN,
} from '../../../../lib/identity/certificate-manager.ts';
import { parseRequest } from '../../../../lib/identity/csr.ts';
import { parseCertificates } from '../../../../lib/tls/pem.ts';
import type { SigningPort, Urgency } from '../../../../lib/identity/signing-port.ts';
import type { Roots } from '../../../../lib/identity/trust-bundle.ts';
import type { WorkloadCertificate } from '../../../../lib/identity/workload-certificate.ts';
import { createRoot, issueLeaf } from '../../../../lib/identity/x509.ts';
import type { Issuer } from '../../../../lib/identity/x509.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { until } from '../../../support/until.ts';

const START = Date.UTC(2026, 10, 21);
const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
const API = 'spiffe://cluster.local/ns/demo/sa/api';

interface Request {
  readonly identity: string;
  readonly urgency: Urgency;
  readonly csrPem: string;
  readonly signal: AbortSignal;
  readonly fail: (error: MeshError) => void;
  readonly answer: (chain: readonly string[]) => void;
  readonly giveUp: (error: MeshError) => void;
}

/** A signer under the test's control: the test decides when requests are answered. */
class PlayedSigning implements SigningPort {
  readonly requests: Request[] = [];
  readonly raised: [string, Urgency][] = [];

  request(
    identity: string,
    csrPem: string,
    urgency: Urgency,
    options: { signal: AbortSignal; onFailure: (error: MeshError) => void },
  ): Promise<readonly string[]> {
    const { promise, resolve, reject } = Promise.withResolvers<readonly string[]>();
    options.signal.addEventListener('abort', () => reject(options.signal.reason as Error));
    this.requests.push({
      identity,
      csrPem,
      urgency,
      signal: options.signal,
      fail: options.onFailure,
      answer: resolve,
      giveUp: reject,
    });
    return promise;
  }

  raise(identity: string, urgency: Urgency): void {
    this.raised.push([identity, urgency]);
  }
}

interface Authority {
  readonly pem: string;
  readonly issuer: Issuer;
}

async function authority(): Promise<Authority> {
  const root = await createRoot('cluster.local', START - 1_000, START + 10_000 * 86_400_000);
  return {
    pem: root.certificatePem,
    issuer: { certificate: new X509Certificate(root.certificatePem), key: root.key },
  };
}

function rootsOf(...authorities: readonly Authority[]): Roots {
  const pem = authorities.map((item) => item.pem).join('');
  return { pem, certificates: parseCertificates(pem, 'roots') };
}

class PlayedBundle {
  current: Roots | null;
  readonly #listeners = new Set<(roots: Roots) => void>();

  constructor(roots: Roots | null) {
    this.current = roots;
  }

  onChange(listener: (roots: Roots) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  change(roots: Roots): void {
    this.current = roots;
    for (const listener of this.#listeners) listener(roots);
  }
}

interface Kit {
  readonly clock: FakeClock;
  readonly signing: PlayedSigning;
  readonly bundle: PlayedBundle;
  readonly ca: Authority;
  readonly manager: CertificateManager;
  readonly published: WorkloadCertificate[];
  readonly unavailable: [string, MeshError][];
  readonly counted: string[];
  /** Waits for the request with this number, from 1. */
  request(number: number): Promise<Request>;
  /** Signs a request as the CA would. */
  sign(
    request: Request,
    lifeMs: number,
    options?: { by?: Authority; identity?: string },
  ): Promise<void>;
}

async function kit(t: ExecutionContext, roots: 'known' | 'unknown' = 'known'): Promise<Kit> {
  const clock = new FakeClock(START);
  const ca = await authority();
  const signing = new PlayedSigning();
  const bundle = new PlayedBundle(roots === 'known' ? rootsOf(ca) : null);
  const published: WorkloadCertificate[] = [];
  const unavailable: [string, MeshError][] = [];
  const counted: string[] = [];
  const manager = new CertificateManager('node-1', {
    clock,
    signing,
    bundle,
    log: keptLog('test').log,
    metrics: {
      issued: () => counted.push('issued'),
      failed: (code) => counted.push(code),
      unknownRoot: () => counted.push('unknownRoot'),
    },
    // No jitter: renewals come at exactly half of the life.
    random: () => 0.5,
  });
  manager.subscribe({
    certificate: (certificate) => published.push(certificate),
    unavailable: (identity, error) => unavailable.push([identity, error]),
  });
  t.teardown(() => manager.close());
  return {
    clock,
    signing,
    bundle,
    ca,
    manager,
    published,
    unavailable,
    counted,
    request: (number) => until(() => signing.requests[number - 1], { what: `request ${number}` }),
    async sign(request, lifeMs, options = {}) {
      const { publicKey } = await parseRequest(request.csrPem);
      const by = options.by ?? ca;
      const leaf = await issueLeaf(by.issuer, {
        publicKey,
        names: [{ kind: 'uri', value: options.identity ?? request.identity }],
        notBeforeMs: clock.now() - 120_000,
        notAfterMs: clock.now() + lifeMs,
      });
      const before = counted.length;
      request.answer([leaf, by.pem]);
      await until(() => counted.length > before, { what: 'the answer to be taken in' });
    },
  };
}

test('an identity is initializing, then available, and published with our own roots', async (t) => {
  const { manager, request, sign, published, ca } = await kit(t);
  t.deepEqual(manager.want(WEB, 'warmUp'), { kind: 'initializing' });
  t.is(manager.records()[0]?.state, 'Initializing');
  const first = await request(1);
  t.is(first.urgency, 'warmUp');
  await sign(first, 86_400_000);
  const status = manager.want(WEB, 'realTime');
  t.is(status.kind, 'available');
  t.is(published.length, 1);
  t.is(published[0]?.rootsPem, ca.pem);
  t.is(published[0]?.key.type, 'private');
  const [record] = manager.records();
  t.like(record, {
    identity: WEB,
    node: 'node-1',
    state: 'Available',
    notAfter: '2026-11-22T00:00:00Z',
    notBefore: '2026-11-20T23:58:00Z',
  });
  t.is(record?.serial, published[0]?.serialNumber);
  const [dump] = manager.dump();
  t.is(dump?.certChain.length, 1);
  t.regex(dump?.certChain[0]?.serialNumber ?? '', /^\d+$/);
  t.is(Buffer.from(dump?.rootCerts[0]?.pem ?? '', 'base64').toString(), ca.pem);
});

test('asking twice makes one request; more urgency raises it', async (t) => {
  const { manager, signing, request } = await kit(t);
  manager.want(WEB, 'warmUp');
  manager.want(WEB, 'warmUp');
  await request(1);
  manager.want(WEB, 'realTime');
  manager.want(WEB, 'realTime');
  t.is(signing.requests.length, 1);
  t.deepEqual(signing.raised, [[WEB, 'realTime']]);
});

test('a text that is no identity is refused', async (t) => {
  const { manager } = await kit(t);
  const error = t.throws(() => manager.want('demo/web', 'realTime'), { instanceOf: MeshError });
  t.is(error?.code, 'IDENTITY_INVALID');
  t.deepEqual(manager.identities(), []);
});

test('renewal comes at half of the time left, with a fresh key, and replaces the certificate', async (t) => {
  const { manager, clock, request, sign, signing, published } = await kit(t);
  manager.want(WEB, 'realTime');
  await sign(await request(1), 60_000);
  await clock.advance(29_999);
  t.is(signing.requests.length, 1);
  await clock.advance(1);
  const second = await request(2);
  t.is(second.urgency, 'renewal');
  t.is(manager.status(WEB).kind, 'available');
  await sign(second, 60_000);
  t.is(published.length, 2);
  t.not(published[1]?.serialNumber, published[0]?.serialNumber);
  const [old, fresh] = published;
  t.true(old !== undefined && fresh?.key.equals(old.key) === false);
});

test('a failing renewal keeps the certificate until it expires, never beyond', async (t) => {
  const { manager, clock, request, sign, unavailable, published } = await kit(t);
  manager.want(WEB, 'realTime');
  await sign(await request(1), 60_000);
  await clock.advance(30_000);
  (await request(2)).giveUp(new MeshError('IDENTITY_UNAVAILABLE', 'the CA is away'));
  await clock.advance(500);
  t.is(manager.status(WEB).kind, 'available');
  t.deepEqual(unavailable, []);
  await clock.advance(29_499);
  t.is(manager.status(WEB).kind, 'available');
  await clock.advance(1);
  const status = manager.status(WEB);
  t.true(status.kind === 'unavailable' && status.error.code === 'IDENTITY_EXPIRED');
  t.is(unavailable.at(-1)?.[1].code, 'IDENTITY_EXPIRED');
  t.regex(
    unavailable.at(-1)?.[1].message ?? '',
    /expired at 2026-11-21T00:01:00.000Z; renewal failed: the CA is away/,
  );
  t.regex(manager.records()[0]?.state ?? '', /^Unavailable: the certificate expired/);
  t.is(published.length, 1);
});

test('a late answer brings an expired identity back', async (t) => {
  const { manager, clock, request, sign } = await kit(t);
  manager.want(WEB, 'realTime');
  await sign(await request(1), 60_000);
  await clock.advance(90_000);
  t.is(manager.status(WEB).kind, 'unavailable');
  await sign(await request(2), 60_000);
  t.is(manager.status(WEB).kind, 'available');
});

test('a failure without a certificate is told at once, then retried with growing delays', async (t) => {
  const { manager, clock, request, unavailable, signing } = await kit(t);
  manager.want(WEB, 'realTime');
  const delays: number[] = [];
  for (let number = 1; number <= 10; number += 1) {
    const current = await request(number);
    current.giveUp(new MeshError('IDENTITY_REFUSED', `refused ${number}`));
    await until(() => unavailable.length === number, { what: 'the refusal to be told' });
    t.is(unavailable[number - 1]?.[1].message, `refused ${number}`);
    const status = manager.want(WEB, 'realTime');
    t.true(status.kind === 'unavailable' && status.error.message === `refused ${number}`);
    t.is(signing.requests.length, number, 'asking again fetches nothing');
    const delay = clock.nextInMs ?? 0;
    delays.push(delay);
    await clock.advance(delay);
  }
  t.deepEqual(
    delays,
    [1, 2, 4, 8, 16, 32, 64, 128, 150, 150].map((seconds) => seconds * 1000),
  );
});

test('failures of attempts that go on are told while the request stays under way', async (t) => {
  const { manager, request, sign, unavailable, signing } = await kit(t);
  manager.want(WEB, 'realTime');
  const first = await request(1);
  first.fail(new MeshError('IDENTITY_REFUSED', 'not yet'));
  t.is(unavailable[0]?.[1].message, 'not yet');
  t.is(manager.records()[0]?.state, 'Unavailable: not yet');
  await sign(first, 60_000);
  t.is(manager.status(WEB).kind, 'available');
  t.is(signing.requests.length, 1);
});

test('when nobody answers, those who wait are told after a while', async (t) => {
  const { manager, clock, request, unavailable } = await kit(t);
  manager.want(WEB, 'realTime');
  await request(1);
  await clock.advance(4_999);
  t.is(unavailable.length, 0);
  await clock.advance(1);
  t.regex(unavailable[0]?.[1].message ?? '', /no answer .* within 5 s/);
});

for (const [what, options, reason] of [
  ['another name', { identity: API }, /names spiffe.*api, expected .*web/],
  ['a foreign root', { by: 'other' }, /does not lead to a trusted root/],
] as const) {
  test(`an answer with ${what} is refused and never published`, async (t) => {
    const { manager, request, sign, published, unavailable, counted } = await kit(t);
    manager.want(WEB, 'realTime');
    const by = 'by' in options ? { by: await authority() } : options;
    await sign(await request(1), 60_000, by);
    t.deepEqual(published, []);
    t.regex(unavailable[0]?.[1].message ?? '', reason);
    t.deepEqual(counted, ['IDENTITY_INVALID']);
  });
}

test('an answer for another key is refused', async (t) => {
  const { manager, request, unavailable, ca, published } = await kit(t);
  manager.want(WEB, 'realTime');
  manager.want(API, 'realTime');
  const first = await request(1);
  const second = await request(2);
  const { publicKey } = await parseRequest(second.csrPem);
  const leaf = await issueLeaf(ca.issuer, {
    publicKey,
    names: [{ kind: 'uri', value: first.identity }],
    notBeforeMs: START - 1_000,
    notAfterMs: START + 60_000,
  });
  first.answer([leaf, ca.pem]);
  await until(() => unavailable.length > 0, { what: 'the refusal' });
  t.regex(unavailable[0]?.[1].message ?? '', /for another key/);
  t.deepEqual(published, []);
});

for (const chain of [
  [],
  ['only one'],
  ['no pem', 'no pem'],
  Array.from({ length: 40 }, () => 'x'),
]) {
  test(`an answer of ${chain.length} broken elements is refused`, async (t) => {
    const { manager, request, unavailable } = await kit(t);
    manager.want(WEB, 'realTime');
    (await request(1)).answer(chain);
    await until(() => unavailable.length > 0, { what: 'the refusal' });
    t.is(unavailable[0]?.[1].code, 'IDENTITY_INVALID');
  });
}

test('a root that comes with the chain and is not ours is reported and not used', async (t) => {
  const { manager, request, published, counted, ca } = await kit(t);
  const other = await authority();
  manager.want(WEB, 'realTime');
  const first = await request(1);
  const { publicKey } = await parseRequest(first.csrPem);
  const leaf = await issueLeaf(ca.issuer, {
    publicKey,
    names: [{ kind: 'uri', value: WEB }],
    notBeforeMs: START - 1_000,
    notAfterMs: START + 60_000,
  });
  first.answer([leaf, ca.pem + other.pem]);
  await until(() => published.length > 0, { what: 'the certificate' });
  t.is(published[0]?.rootsPem, ca.pem);
  t.deepEqual(counted, ['issued', 'unknownRoot']);
});

test('changed roots are published with the same certificate; one they do not bear is renewed', async (t) => {
  const { manager, request, sign, bundle, ca, published, signing } = await kit(t);
  const next = await authority();
  manager.want(WEB, 'realTime');
  await sign(await request(1), 86_400_000);
  bundle.change(rootsOf(ca, next));
  t.is(published.length, 2);
  t.is(published[1]?.rootsPem, ca.pem + next.pem);
  t.is(published[1]?.serialNumber, published[0]?.serialNumber);
  t.is(signing.requests.length, 1);
  bundle.change(rootsOf(next));
  t.is(published[2]?.rootsPem, next.pem);
  await sign(await request(2), 86_400_000, { by: next });
  t.is(published.length, 4);
  t.not(published[3]?.serialNumber, published[0]?.serialNumber);
});

test('changed roots are published for a few identities in a turn, the newest roots alone', async (t) => {
  const { manager, request, sign, bundle, ca, published } = await kit(t);
  const [next, last] = [rootsOf(ca, await authority()), rootsOf(ca, await authority())];
  const count = 3 * ROOTS_PER_TURN;
  for (let index = 1; index <= count; index += 1) {
    manager.want(`${WEB}-${index}`, 'realTime');
    await sign(await request(index), 86_400_000);
  }
  published.splice(0);
  bundle.change(next);
  t.is(published.length, ROOTS_PER_TURN);
  await turn();
  t.is(published.length, 2 * ROOTS_PER_TURN);
  published.splice(0);
  bundle.change(last);
  for (let turns = 1; turns <= 3; turns += 1) {
    t.is(published.length, turns * ROOTS_PER_TURN);
    await turn();
  }
  t.is(published.length, count);
  t.true(published.every(({ rootsPem }) => rootsPem === last.pem));
});

test('without a bundle nothing is accepted; its arrival ends the wait', async (t) => {
  const { manager, request, sign, bundle, ca, published, unavailable } = await kit(t, 'unknown');
  manager.want(WEB, 'realTime');
  await sign(await request(1), 60_000);
  t.regex(unavailable[0]?.[1].message ?? '', /trust bundle has not been read/);
  bundle.change(rootsOf(ca));
  await sign(await request(2), 60_000);
  t.is(published.length, 1);
});

test('a forgotten identity is gone, and its answer is discarded', async (t) => {
  const { manager, request, published, unavailable, clock, signing } = await kit(t);
  manager.want(WEB, 'warmUp');
  const first = await request(1);
  manager.forget(WEB);
  manager.forget(WEB);
  t.true(first.signal.aborted);
  t.deepEqual(manager.records(), []);
  await clock.advance(600_000);
  t.deepEqual([published, unavailable, signing.requests.length, clock.pending], [[], [], 1, 0]);
  manager.want(WEB, 'realTime');
  await request(2);
});

test('background requests are bounded, real-time ones pass them', async (t) => {
  const { manager, signing, request } = await kit(t);
  for (let number = 0; number < 70; number += 1) {
    manager.want(`spiffe://cluster.local/ns/demo/sa/a${number}`, 'warmUp');
  }
  await request(64);
  t.is(signing.requests.length, 64);
  manager.want('spiffe://cluster.local/ns/demo/sa/a69', 'realTime');
  manager.want(WEB, 'realTime');
  await request(66);
  t.deepEqual(
    signing.requests
      .slice(64)
      .map((item) => item.identity)
      .toSorted(),
    ['spiffe://cluster.local/ns/demo/sa/a69', WEB],
  );
  manager.forget('spiffe://cluster.local/ns/demo/sa/a0');
  t.is((await request(67)).identity, 'spiffe://cluster.local/ns/demo/sa/a64');
  t.deepEqual(manager.counts(), { initializing: 70, available: 0, unavailable: 0 });
});
