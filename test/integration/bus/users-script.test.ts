import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { startPrivateRedis } from '../../support/private-redis.ts';
import { openBus } from '../../support/bus.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';

const SCRIPT = new URL('../../../infra/redis/users.ts', import.meta.url).pathname;

test('the users an operator writes with the script get in, and keep their passwords when a node is added', async (t) => {
  const dir = await makeScratch('users');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const write = (nodes: string): string =>
    execFileSync(process.execPath, [SCRIPT, '--out', dir, '--nodes', nodes], { encoding: 'utf8' });
  t.regex(write('a'), /^node-proxy\.a$/m);
  const passwordFile = join(dir, 'secrets', 'node-proxy.a');
  const password = readFileSync(passwordFile, 'utf8');
  t.regex(write('a,b'), /^node-proxy\.b$/m);
  t.is(readFileSync(passwordFile, 'utf8'), password);
  const socketPath = join(dir, 'redis.sock');
  const aclFile = join(dir, 'users.acl');
  const server = await startPrivateRedis({ socketPath, dataDir: join(dir, 'data'), aclFile });
  t.teardown(() => server.kill());
  const { bus } = openBus(t, {
    endpoint: { kind: 'unix', path: socketPath },
    username: 'node-proxy.a',
    passwordFile,
    caFile: null,
    prefix: 'weft',
  });
  await until(() => bus.connected, { what: 'the connection' });
});
