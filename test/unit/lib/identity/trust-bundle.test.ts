import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { parseRootSource, readRoots } from '../../../../lib/tls/roots.ts';
import { TrustBundle } from '../../../../lib/identity/trust-bundle.ts';
import type { Roots } from '../../../../lib/identity/trust-bundle.ts';
import { createRoot } from '../../../../lib/identity/x509.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { until } from '../../../support/until.ts';
import { makeScratch } from '../../../support/leftovers.ts';

async function folder(t: ExecutionContext): Promise<string> {
  const dir = await makeScratch('bundle');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

async function root(name: string): Promise<string> {
  const now = Date.now();
  return (await createRoot(name, now - 1_000, now + 3_600_000)).certificatePem;
}

/** Replaces the file atomically, so that no reader sees half of it. */
async function put(path: string, content: string): Promise<void> {
  await writeFile(`${path}.new`, content);
  await rename(`${path}.new`, path);
}

function bundle(
  t: ExecutionContext,
  path: string,
): { bundle: TrustBundle; seen: Roots[]; broken: () => number } {
  const { log, lines } = keptLog('test');
  const made = new TrustBundle(parseRootSource(path), {
    clock: systemClock,
    log,
  });
  const seen: Roots[] = [];
  made.onChange((roots) => seen.push(roots));
  t.teardown(() => made.close());
  return {
    bundle: made,
    seen,
    broken: () => lines.filter((line) => line['message'] === 'trust-bundle.unusable').length,
  };
}

test('a file is read, each root once, and followed', async (t) => {
  const path = join(await folder(t), 'root-cert.pem');
  const [one, two] = [await root('one'), await root('two')];
  await writeFile(path, `comment\n${one}${one}`);
  const { bundle: followed, seen } = bundle(t, path);
  await followed.start();
  t.is(followed.current?.pem, one);
  await put(path, one + two);
  await until(() => seen.length === 2, { what: 'the second root' });
  t.is(followed.current?.certificates.length, 2);
});

test('a broken or missing update leaves the last good roots in force and is told once', async (t) => {
  const path = join(await folder(t), 'root-cert.pem');
  const one = await root('one');
  await writeFile(path, one);
  const { bundle: followed, seen, broken } = bundle(t, path);
  await followed.start();
  await put(path, one.slice(0, 200));
  await until(() => followed.problem, { what: 'the problem' });
  await followed.reload();
  t.is(broken(), 1);
  await rm(path);
  await until(() => /ENOENT/.test(followed.problem ?? ''), { what: 'the missing file' });
  t.is(followed.current?.pem, one);
  t.is(seen.length, 1);
  await put(path, one);
  await until(() => followed.problem === null, { what: 'the file to be back' });
  t.is(seen.length, 1, 'the same roots are no change');
});

test('a bundle that does not exist yet, nor its folder, is found when it comes', async (t) => {
  const dir = join(await folder(t), 'later');
  const { bundle: followed, seen } = bundle(t, join(dir, 'root-cert.pem'));
  await followed.start();
  t.is(followed.current, null);
  await mkdir(dir);
  await writeFile(join(dir, 'root-cert.pem'), await root('late'));
  await until(() => seen.length === 1, { what: 'the bundle' });
});

test('a projected volume is followed: the file is a link behind a link that is swapped', async (t) => {
  const dir = await folder(t);
  const [one, two] = [await root('one'), await root('two')];
  for (const [name, pem] of [
    ['v1', one],
    ['v2', two],
  ] as const) {
    await mkdir(join(dir, name));
    await writeFile(join(dir, name, 'root-cert.pem'), pem);
  }
  await symlink('v1', join(dir, '..data'));
  await symlink('..data/root-cert.pem', join(dir, 'root-cert.pem'));
  const { bundle: followed } = bundle(t, join(dir, 'root-cert.pem'));
  await followed.start();
  t.is(followed.current?.pem, one);
  await symlink('v2', join(dir, '..next'));
  await rename(join(dir, '..next'), join(dir, '..data'));
  await until(() => followed.current?.pem === two, { what: 'the swapped bundle' });
});

test('roots come from PEM itself or the system store', async (t) => {
  const pem = await root('inline');
  t.deepEqual(parseRootSource(pem), { kind: 'pem', pem });
  t.is(await readRoots(parseRootSource(pem)), pem);
  t.deepEqual(parseRootSource('SYSTEM'), { kind: 'system' });
  await t.notThrowsAsync(() => readRoots({ kind: 'system' }));
  await t.throwsAsync(() => readRoots({ kind: 'pem', pem: '-----BEGIN nothing' }), {
    message: /holds no certificate/,
  });
});
