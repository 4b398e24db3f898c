import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, mkdtemp, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import type { ExecutionContext } from 'ava';

const launcher = new URL('../../../services/cli/weft', import.meta.url).pathname;
const run = promisify(execFile);

/** A checkout with one source, whose built program prints a word. */
async function checkout(t: ExecutionContext): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'weft-launcher-'));
  t.teardown(() => rm(root, { recursive: true }));
  const file = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  };
  for (const folder of ['lib', 'workers', 'proto/gen', 'node_modules/.bin']) {
    await mkdir(join(root, folder), { recursive: true });
  }
  await file('package-lock.json', '{}');
  await file('lib/one.ts', '');
  await file('dist/1/services/cli/main.js', 'process.stdout.write("built")');
  await symlink('1', join(root, 'dist/current'));
  await mkdir(join(root, 'services/cli'), { recursive: true });
  await copyFile(launcher, join(root, 'services/cli/weft'));
  await chmod(join(root, 'services/cli/weft'), 0o755);
  await symlink(process.execPath, join(root, 'node_modules/.bin/node'));
  return root;
}

test('the launcher runs what was built', async (t) => {
  const root = await checkout(t);
  t.is((await run(join(root, 'services/cli/weft'))).stdout, 'built');
});

test('the launcher refuses programs that are older than a source, and names it', async (t) => {
  const root = await checkout(t);
  const later = new Date(Date.now() + 60_000);
  await utimes(join(root, 'lib/one.ts'), later, later);
  const error = await t.throwsAsync(run(join(root, 'services/cli/weft')));
  t.regex(
    error?.message ?? '',
    /lib\/one\.ts is newer than the built programs; run: npm run build/,
  );
});

test('the launcher says how to build what is not built', async (t) => {
  const root = await checkout(t);
  await rm(join(root, 'dist'), { recursive: true });
  const error = await t.throwsAsync(run(join(root, 'services/cli/weft')));
  t.regex(error?.message ?? '', /has no built programs; run: sh .*infra\/setup\.sh/);
});
