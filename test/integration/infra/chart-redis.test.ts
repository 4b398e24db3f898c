/** The Redis of a node as infra/kubernetes/weft.yaml runs it: its configuration, the lock of its folder, and damaged files. */
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess, ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { parseAllDocuments } from 'yaml';
import * as z from 'zod';
import { present } from '../../../lib/errors/assert.ts';
import { redisAnswers } from '../../../services/local-mesh/redis.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';

const schema = z.object({
  config: z.object({ data: z.object({ 'redis.conf': z.string() }) }),
  daemonSet: z.object({
    spec: z.object({
      template: z.object({
        spec: z.object({ containers: z.tuple([z.object({ command: z.array(z.string()) })]) }),
      }),
    }),
  }),
});

interface Rig {
  readonly socket: string;
  readonly data: string;
  start(): ChildProcessByStdio<null, Readable, null>;
}

/** Puts the container's paths into a folder of the test. */
async function rig(t: ExecutionContext): Promise<Rig> {
  const file = new URL('../../../infra/kubernetes/weft.yaml', import.meta.url);
  const objects = parseAllDocuments(await readFile(file, 'utf8')).map(
    (document) => document.toJS() as { kind: string; metadata: { name: string } },
  );
  const find = (kind: string): unknown =>
    objects.find((object) => object.kind === kind && object.metadata.name === 'weft-redis');
  const { config, daemonSet } = schema.parse({
    config: find('ConfigMap'),
    daemonSet: find('DaemonSet'),
  });
  const root = await makeScratch('chart-redis');
  t.teardown(() => rm(root, { recursive: true, force: true }));
  const paths = ['/var/run/weft/redis', '/var/lib/weft/redis', '/etc/weft/redis'] as const;
  const placed = (words: string): string =>
    paths
      .reduce((result, path) => result.replaceAll(path, join(root, path)), words)
      .replace('/opt/weft/', new URL('../../../', import.meta.url).pathname);
  for (const path of paths) await mkdir(join(root, path), { recursive: true });
  await writeFile(join(root, paths[2], 'redis.conf'), placed(config.data['redis.conf']));
  const [{ command }] = daemonSet.spec.template.spec.containers;
  const [program = '', ...args] = command.map(placed);
  return {
    socket: join(root, paths[0], 'redis.sock'),
    data: join(root, paths[1]),
    start() {
      const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] });
      t.teardown(() => child.kill('SIGKILL'));
      return child;
    },
  };
}

const run = promisify(execFile);

async function nameOf(child: ChildProcess): Promise<string> {
  return (await readFile(`/proc/${present(child.pid, 'it runs')}/comm`, 'utf8')).trim();
}

test('it answers its group on the socket with an append-only file, and a second one waits for the folder', async (t) => {
  const { socket, data, start } = await rig(t);
  const first = start();
  const ended = once(first, 'exit');
  await until(() => redisAnswers(socket), { what: 'Redis answers' });
  t.is(await nameOf(first), 'redis-server', 'the lock leaves no process between');
  t.is((await stat(socket)).mode & 0o777, 0o770);
  t.true((await readdir(data)).includes('appendonlydir'));
  const second = start();
  const waits = new RegExp(`-> FLOCK .* ${second.pid} `);
  await until(async () => waits.test(await readFile('/proc/locks', 'utf8')), {
    what: 'the second one waits',
  });
  first.kill('SIGTERM');
  await ended;
  await until(async () => (await nameOf(second)) === 'redis-server' && redisAnswers(socket), {
    what: 'the second one serves',
  });
  t.is(second.exitCode, null);
});

/** Runs a Redis, lets `damage` work on the folder of its killed process, and returns what the next one has and says. */
async function afterDamage(
  t: ExecutionContext,
  damage: (folder: string) => Promise<void>,
): Promise<{ readonly keys: string; readonly said: string; readonly data: string }> {
  const { socket, data, start } = await rig(t);
  const redis = async (...words: string[]): Promise<string> =>
    (await run('redis-cli', ['-e', '-s', socket, ...words])).stdout.trim();
  const first = start();
  const killed = once(first, 'exit');
  await until(() => redisAnswers(socket), { what: 'Redis answers' });
  await redis('mset', 'one', '1', 'two', '2');
  first.kill('SIGKILL');
  await killed;
  await damage(join(data, 'appendonlydir'));
  const second = start();
  const said = text(second.stdout);
  await until(() => second.exitCode !== null || redisAnswers(socket), { what: 'Redis is back' });
  const keys = second.exitCode === null ? await redis('mget', 'one', 'two') : 'Redis ended';
  second.kill('SIGTERM');
  return { keys, said: await said, data };
}

test('an undamaged append-only file is left alone', async (t) => {
  const { keys, said } = await afterDamage(t, async () => {});
  t.is(keys, '1\n2');
  t.notRegex(said, /weft-redis/);
});

test('zeros at the end of the append-only file, as a power loss leaves them, are cut', async (t) => {
  const { keys, said, data } = await afterDamage(t, (folder) =>
    appendFile(join(folder, 'appendonly.aof.1.incr.aof'), Buffer.alloc(4_096)),
  );
  t.is(keys, '1\n2');
  t.regex(
    said,
    /^weft-redis: repaired a damaged append-only file: AOF appendonly\.aof\.1\.incr\.aof .* with 4096 bytes/m,
  );
  t.false((await readdir(data)).includes('appendonlydir.damaged'));
});

for (const [what, name, content] of [
  ['a manifest of zeros', 'appendonly.aof.manifest', Buffer.alloc(100)],
  ['a manifest cut in a line', 'appendonly.aof.manifest', 'file appendonly.aof.1.ba'],
  ['an empty manifest', 'appendonly.aof.manifest', ''],
  ['a damaged base', 'appendonly.aof.1.base.rdb', Buffer.alloc(100)],
] as const) {
  test(`${what} is moved aside, also where an earlier one lies`, async (t) => {
    const { keys, said, data } = await afterDamage(t, async (folder) => {
      await mkdir(`${folder}.damaged`);
      await writeFile(join(`${folder}.damaged`, 'earlier'), '');
      await writeFile(join(folder, name), content);
    });
    t.is(keys, '', 'Redis serves without keys');
    t.regex(said, /^weft-redis: the append-only file is beyond repair: starts empty, moved/m);
    const kept = join(data, 'appendonlydir.damaged');
    t.deepEqual(await readFile(join(kept, name)), Buffer.from(content));
    t.false((await readdir(kept)).includes('earlier'), 'one copy is kept');
  });
}
