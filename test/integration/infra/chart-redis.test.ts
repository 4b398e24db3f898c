/** The Redis of a node as infra/kubernetes/weft.yaml runs it: its configuration, and the lock of its folder. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
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
  start(): ChildProcess;
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
  const placed = (text: string): string =>
    paths.reduce((result, path) => result.replaceAll(path, join(root, path)), text);
  for (const path of paths) await mkdir(join(root, path), { recursive: true });
  await writeFile(join(root, paths[2], 'redis.conf'), placed(config.data['redis.conf']));
  const [{ command }] = daemonSet.spec.template.spec.containers;
  const [program = '', ...args] = command.map(placed);
  return {
    socket: join(root, paths[0], 'redis.sock'),
    data: join(root, paths[1]),
    start() {
      const child = spawn(program, args, { stdio: 'ignore' });
      t.teardown(() => child.kill('SIGKILL'));
      return child;
    },
  };
}

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
