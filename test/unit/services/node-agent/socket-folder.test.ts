import { chmod, chown, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { keepSocketFolder } from '../../../../services/node-agent/socket-folder.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { makeScratch } from '../../../support/leftovers.ts';

const ROOT = process.geteuid?.() === 0;
const OTHER_USER = 1_337;

/** Keeps a folder with these files, which had a mode before; resolves to its new mode and to what was logged. */
async function kept(
  t: ExecutionContext,
  files: readonly string[],
  before: { readonly mode: number; readonly uid?: number } | null,
): Promise<{ readonly mode: string; readonly said: readonly string[] }> {
  const dir = await makeScratch('folder');
  t.teardown(() => rm(dir, { recursive: true }));
  const folder = join(dir, 'zds');
  if (before !== null) {
    await mkdir(folder);
    for (const file of files) await writeFile(join(folder, file), '');
    await chmod(folder, before.mode);
    if (before.uid !== undefined) await chown(folder, before.uid, before.uid);
  }
  const { log, lines } = keptLog('node-agent');
  const pods = { kind: 'directory', path: join(folder, 'pods') } as const;
  await keepSocketFolder({ socketPath: join(folder, 'ztunnel.sock'), pods }, log);
  const mode = ((await stat(folder)).mode & 0o7777).toString(8);
  return { mode, said: lines.map(({ message }) => message) };
}

test('the folder of the socket is for its own user, whoever made it', async (t) => {
  const own = { mode: '700', said: [] };
  t.deepEqual(await kept(t, [], null), own);
  t.deepEqual(await kept(t, [], { mode: 0o755 }), own);
  const left = ['ztunnel.sock', 'pods', 'xtables-4026531840.lock', 'xtables-probe-7.lock'];
  t.deepEqual(await kept(t, left, { mode: 0o777 }), own);
  t.deepEqual(await kept(t, ['other.sock'], { mode: 0o700 }), own);
});

test('a folder that others use keeps its mode, and that is told', async (t) => {
  const said = ['agent.shared-socket-folder'];
  t.deepEqual(await kept(t, ['other.sock'], { mode: 0o755 }), { mode: '755', said });
});

(ROOT ? test : test.skip)('a folder of another user keeps its mode', async (t) => {
  const said = ['agent.shared-socket-folder'];
  t.deepEqual(await kept(t, [], { mode: 0o750, uid: OTHER_USER }), { mode: '750', said });
});
