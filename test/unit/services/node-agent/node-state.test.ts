/** The files of a node that an agent takes away when it leaves for good. */
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { removeNodeState } from '../../../../services/node-agent/host/node-state.ts';
import { makeScratch } from '../../../support/leftovers.ts';

test('the files of Redis go, other files of the node stay, and a node without them is no failure', async (t) => {
  const root = await makeScratch('node-state');
  t.teardown(() => rm(root, { recursive: true, force: true }));
  const folder = join(root, 'var/lib/weft/redis/appendonlydir');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'appendonly.aof.1.incr.aof'), 'rows');
  await writeFile(join(root, 'var/lib/other'), 'kept');
  await removeNodeState(root);
  t.deepEqual(await readdir(join(root, 'var/lib')), ['other', 'weft']);
  t.deepEqual(await readdir(join(root, 'var/lib/weft')), []);
  await removeNodeState(root);
});
