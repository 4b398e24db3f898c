/** Tests that trust goes on while the certificate of another authority, by which the CA signs, is replaced. */
import { X509Certificate, generateKeyPairSync } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { createRoot, issueIntermediate } from '../../../lib/identity/x509.ts';
import type { Issuer } from '../../../lib/identity/x509.ts';
import { caStatus } from '../../../services/ca/operations.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import type { CaKit } from '../../support/ca-kit.ts';
import { startCaNode, startHandshakes } from '../../support/ca-node.ts';
import { until } from '../../support/until.ts';
import { API, PODS, RULES, WEB, ask, storesOf } from '../../support/root-kit.ts';

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
    ].map((who) => startCaNode(t, kit, { ...who, bundlePath: kit.bundlePath, seconds: 40 })),
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
