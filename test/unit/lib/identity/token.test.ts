import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { decodeJwt, decodeProtectedHeader } from 'jose';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { TokenVerifier } from '../../../../lib/identity/token.ts';
import { tokenSource } from '../../../../lib/grpc/token-source.ts';
import { keptLog } from '../../../support/actor-context.ts';
import type { LogLine } from '../../../support/actor-context.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { accountSubject, createTokenIssuer, nodeSubject } from '../../../support/token-issuer.ts';
import type { TestTokenIssuer } from '../../../support/token-issuer.ts';
import { makeScratch } from '../../../support/leftovers.ts';

interface Kit {
  readonly path: string;
  readonly issuer: TestTokenIssuer;
  readonly verifier: TokenVerifier;
  readonly clock: FakeClock;
  readonly lines: LogLine[];
}

async function kit(t: ExecutionContext): Promise<Kit> {
  const dir = await makeScratch('token');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'jwks.json');
  const issuer = createTokenIssuer();
  const clock = new FakeClock();
  const { log, lines } = keptLog('test');
  const options = { jwksPath: path, audiences: ['istio-ca', 'weft'], issuer: issuer.issuer };
  return { path, issuer, clock, lines, verifier: new TokenVerifier(options, { clock, log }) };
}

test('a token carries what Kubernetes projects', async (t) => {
  const { issuer } = await kit(t);
  const token = await issuer.mint(nodeSubject('node-1'), { issuedAtMs: 1_000_000_000_000 });
  t.like(decodeProtectedHeader(token), { alg: 'ES256' });
  t.deepEqual(decodeJwt(token), {
    iss: issuer.issuer,
    aud: 'istio-ca',
    sub: 'system:serviceaccount:istio-system:ztunnel',
    iat: 1_000_000_000,
    nbf: 1_000_000_000,
    exp: 1_000_003_600,
    'kubernetes.io': {
      namespace: 'istio-system',
      node: { name: 'node-1', uid: 'uid-node-1' },
      pod: { name: 'ztunnel-node-1', uid: 'uid-istio-system-ztunnel-node-1' },
      serviceaccount: { name: 'ztunnel', uid: 'sa-ztunnel' },
    },
  });
});

test('a valid token names its holder', async (t) => {
  const { path, issuer, verifier, clock } = await kit(t);
  await issuer.publish(path);
  const terms = { issuedAtMs: clock.now(), lifetimeMs: 60_000 };
  // Clocks may differ by ten seconds.
  const validUntilMs = Math.floor(clock.now() / 1_000) * 1_000 + 70_000;
  t.deepEqual(await verifier.verify(await issuer.mint(nodeSubject('n'), terms)), {
    ...nodeSubject('n'),
    validUntilMs,
  });
  const plain = accountSubject('demo', 'web');
  const token = await issuer.mint(plain, { ...terms, audience: 'weft' });
  t.deepEqual(await verifier.verify(token), { ...plain, validUntilMs });
});

test('a token expires, with a tolerance for clocks', async (t) => {
  const { path, issuer, verifier, clock } = await kit(t);
  await issuer.publish(path);
  const token = await issuer.mint(nodeSubject('n'), {
    issuedAtMs: clock.now(),
    lifetimeMs: 60_000,
  });
  await clock.advance(65_000);
  const { validUntilMs } = await verifier.verify(token);
  await clock.advance(validUntilMs - clock.now() - 1);
  await verifier.verify(token);
  await clock.advance(1);
  const error = await t.throwsAsync(() => verifier.verify(token), { instanceOf: MeshError });
  t.is(error?.code, 'IDENTITY_TOKEN');
  t.regex(error?.message ?? '', /expired at \d{4}-/);
});

test('keys are read again when the file changes, and the last good ones stay when it breaks', async (t) => {
  const { path, issuer, verifier, lines } = await kit(t);
  await issuer.publish(path);
  const old = await issuer.mint(nodeSubject('n'));
  await verifier.verify(old);
  await writeFile(path, '{"keys": "none"}');
  await verifier.verify(old);
  t.regex(String(lines.at(-1)?.['problem']), /holds no keys/);
  const next = createTokenIssuer(issuer.issuer);
  await next.publish(path);
  await verifier.verify(await next.mint(nodeSubject('n')));
  await t.throwsAsync(() => verifier.verify(old), { message: /unknown key/ });
});

test('without a key set nothing is accepted, and the error names the file', async (t) => {
  const { path, issuer, verifier } = await kit(t);
  const token = await issuer.mint(nodeSubject('n'));
  const error = await t.throwsAsync(() => verifier.verify(token), { instanceOf: MeshError });
  t.is(error?.code, 'STATE_UNAVAILABLE');
  t.true(error?.message.includes(path));
});

for (const [what, forge, reason] of [
  [
    'a changed body',
    (parts: string[]) => [parts[0], Buffer.from('{"sub":"x"}').toString('base64url'), parts[2]],
    /signature is wrong/,
  ],
  [
    'no signature',
    (parts: string[]) => [Buffer.from('{"alg":"none"}').toString('base64url'), parts[1], ''],
    /alg/,
  ],
  [
    'a symmetric signature',
    (parts: string[]) => [Buffer.from('{"alg":"HS256"}').toString('base64url'), parts[1], parts[2]],
    /alg/,
  ],
  ['two parts', (parts: string[]) => [parts[0], parts[1]], /Invalid Compact JWS/],
] as const) {
  test(`a token with ${what} is refused`, async (t) => {
    const { path, issuer, verifier } = await kit(t);
    await issuer.publish(path);
    const token = await issuer.mint(nodeSubject('n'));
    const error = await t.throwsAsync(() => verifier.verify(forge(token.split('.')).join('.')), {
      instanceOf: MeshError,
    });
    t.is(error?.code, 'IDENTITY_TOKEN');
    t.regex(error?.message ?? '', reason);
  });
}

test('the token source reads the file anew each time, and takes a text without a slash as it is', async (t) => {
  const dir = await makeScratch('token');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'token');
  const source = tokenSource(path);
  await t.throwsAsync(async () => source?.(), { message: /cannot read the token file/ });
  await writeFile(path, 'one\n');
  t.is(await source?.(), 'one');
  await writeFile(path, 'two');
  t.is(await source?.(), 'two');
  await writeFile(path, ' \n');
  await t.throwsAsync(async () => source?.(), { message: /is empty/ });
  t.is(await tokenSource('abc.def.ghi')?.(), 'abc.def.ghi');
  t.is(tokenSource(null), null);
  t.is((await readFile(path, 'utf8')).trim(), '');
});
