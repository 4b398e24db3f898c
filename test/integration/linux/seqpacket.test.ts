import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { connectSeqpacket, listenSeqpacket } from '../../../lib/linux/seqpacket.ts';
import type { SeqpacketConnection } from '../../../lib/linux/seqpacket.ts';
import { until } from '../../support/until.ts';
import { makeScratch } from '../../support/leftovers.ts';

async function directory(t: ExecutionContext): Promise<string> {
  const dir = await makeScratch('seq');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

const onError = (error: Error): void => {
  throw error;
};

test('a thread that ends with open sockets ends cleanly', async (t) => {
  const dir = await directory(t);
  const script = new URL('../../support/seqpacket.worker.ts', import.meta.url);
  for (const exit of [false, true]) {
    const workerData = { path: join(dir, `s-${exit}`), exit };
    const worker = new Worker(script, { workerData });
    const ended = once(worker, 'exit');
    t.deepEqual(await once(worker, 'message'), ['hello']);
    if (!exit) await worker.terminate();
    t.deepEqual(await ended, [exit ? 3 : 1]);
  }
});

test('packets stay whole and in order, the end is told once, credentials are the kernel’s', async (t) => {
  const path = join(await directory(t), 's');
  const server = listenSeqpacket(path, { mode: 0o600, onError });
  t.teardown(() => server.close());
  const accepted: SeqpacketConnection[] = [];
  const got: string[] = [];
  const ends: (Error | null)[] = [];
  server.onConnection = (connection) => {
    accepted.push(connection);
    connection.onMessage = ({ data, truncated }) => got.push(`${data.toString()}${truncated}`);
    connection.onClose = (error) => ends.push(error);
  };
  const client = connectSeqpacket(path);
  // More than the socket buffer holds: the rest waits for the reader.
  const texts = Array.from({ length: 600 }, (_, index) => `${index}-${'x'.repeat(900)}-`);
  await Promise.all(texts.map((text) => client.send(Buffer.from(text))));
  await until(() => got.length === texts.length, { what: 'all packets' });
  t.deepEqual(
    got,
    texts.map((text) => `${text}false`),
  );
  t.deepEqual(accepted[0]?.peer, { pid: process.pid, uid: process.getuid?.() ?? -1 });
  client.close();
  client.close();
  await until(() => ends.length > 0, { what: 'the end' });
  t.deepEqual(ends, [null]);
  await t.throwsAsync(client.send(Buffer.from('x')), { message: /closed/ });
});

test('a stale socket is replaced, another file is not, and only the own file is removed', async (t) => {
  const dir = await directory(t);
  const path = join(dir, 's');
  const first = listenSeqpacket(path, { mode: 0o600, onError });
  const second = listenSeqpacket(path, { mode: 0o600, onError });
  first.close();
  t.true(existsSync(path));
  second.close();
  t.false(existsSync(path));
  t.like(
    t.throws(() => connectSeqpacket(path)),
    {
      code: 'NATIVE_SYSCALL',
      detail: { call: 'connect', errno: 'ENOENT', path },
    },
  );
  const file = join(dir, 'file');
  await writeFile(file, 'precious');
  t.like(
    t.throws(() => listenSeqpacket(file, { mode: 0o600, onError })),
    {
      detail: { call: 'bind', errno: 'EADDRINUSE' },
    },
  );
  t.true(existsSync(file));
  t.like(
    t.throws(() => connectSeqpacket(join(dir, 'x'.repeat(200)))),
    {
      detail: { errno: 'ENAMETOOLONG' },
    },
  );
});
