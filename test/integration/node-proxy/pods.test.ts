import { closeSync, fstatSync, openSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { MessageChannel } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { nodeProxyConfig } from '../../../services/node-proxy/config.ts';
import { ListenerPool } from '../../../services/node-proxy/pool/listener-pool.ts';
import { PENDING_RETRY_MS, YOUNG_GENERATION_MB } from '../../../services/node-proxy/limits.ts';
import { PodManager } from '../../../services/node-proxy/pods/pod-manager.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { ownPort } from '../../support/ports.ts';
import { until } from '../../support/until.ts';

const entry = fileURLToPath(new URL('../../support/tiny-listener.worker.ts', import.meta.url));

/** Creates a manager that uses `clock`. */
async function setUp(t: ExecutionContext, threads: number, clock: Clock = systemClock) {
  const log = createLogger({ actor: 'test', level: 'silent' });
  const counted = { started: 0, stopped: 0, lost: 0 };
  const openFds = new Set<number>();
  const events = { unrecoverable: null as MeshError | null, lostThreads: 0 };
  const config = nodeProxyConfig.parse({ REDIS_URL: 'unix:///nowhere' });
  const pool = new ListenerPool(
    {
      entry,
      threads,
      settings: { ...config.listener, node: 'n', logLevel: 'info', logFormat: 'json' },
    },
    {
      clock: systemClock,
      log,
      connectState: () => new MessageChannel().port1,
      certificateNeeded: () => undefined,
      threadLost: () => {
        events.lostThreads += 1;
      },
      unrecoverable: (error) => {
        events.unrecoverable = error;
      },
    },
  );
  await pool.start();
  const manager = new PodManager({
    clock,
    log,
    podDrainMs: 60_000,
    counters: {
      started: () => (counted.started += 1),
      stopped: () => (counted.stopped += 1),
      lost: () => (counted.lost += 1),
    },
    place: (info, fd, avoid) => pool.place(info, fd, avoid),
    placeOn: ({ info }, thread, fd) => pool.placeOn(thread, info, fd),
    duplicate: (fd) => {
      const copy = openSync(`/proc/self/fd/${fd}`, 'r');
      openFds.add(copy);
      return copy;
    },
    divide: (uid, threads) => pool.divide(uid, threads),
    netnsIdentity: (fd) => {
      const { ino, dev } = fstatSync(fd);
      return { inode: String(ino), device: String(dev) };
    },
    closeFd: (fd) => {
      openFds.delete(fd);
      closeSync(fd);
    },
    changed: () => undefined,
  });
  t.teardown(async () => {
    await manager.stop();
    await pool.close();
    if (openFds.size > 0) throw new Error('a descriptor was left open');
  });
  return {
    pool,
    manager,
    counted,
    events,
    netns(path = '/proc/self/ns/net'): number {
      const fd = openSync(path, 'r');
      openFds.add(fd);
      return fd;
    },
  };
}

const info = (uid: string, port: number, name = uid) => ({
  uid,
  name,
  namespace: 'ns',
  serviceAccount: String(port),
});

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

test('a thread keeps a bounded young generation, as an idle one gives nothing of it back', async (t) => {
  const { pool } = await setUp(t, 1);
  for (const { worker } of pool.threads.values()) {
    t.is(worker.resourceLimits?.maxYoungGenerationSizeMb, YOUNG_GENERATION_MB);
  }
});

test('pods are spread over the threads, and reports name their connections', async (t) => {
  const { pool, manager, netns, counted } = await setUp(t, 2);
  const ports = [await ownPort(), await ownPort()];
  await Promise.all(ports.map((port, index) => manager.add(info(`u${index}`, port), netns())));
  t.deepEqual(
    [...pool.threads.values()].map((thread) => thread.pods.size),
    [1, 1],
  );
  t.is(counted.started, 2);
  const sockets = await Promise.all(ports.map(dial));
  await Promise.all(sockets.map((socket) => once(socket, 'data')));
  const reports = await Promise.all(
    [...pool.threads.values()].map((thread) => thread.connections()),
  );
  t.deepEqual(
    reports
      .flat()
      .map((record) => record.podUid)
      .sort(),
    ['u0', 'u1'],
  );
  for (const socket of sockets) socket.destroy();
});

// spec: inpod.md §4.1, spec: inpod.md §4.2
test('the same namespace again changes nothing, another one replaces the pod', async (t) => {
  const { manager, netns, counted } = await setUp(t, 1);
  const port = await ownPort();
  await manager.add(info('u', port), netns());
  const placed = manager.pods.get('u')?.placed;
  await manager.add(info('u', port), netns());
  t.is(manager.pods.get('u')?.placed, placed);
  await manager.add(info('u', port), netns('/proc/self/ns/mnt'));
  t.not(manager.pods.get('u')?.placed, placed);
  t.is(manager.pods.get('u')?.state, 'Up');
  t.deepEqual({ ...counted }, { started: 2, stopped: 1, lost: 0 });
  (await dial(port)).destroy();
});

// spec: inpod.md §4.4, spec: inpod.md §7
test('a pod that cannot start is refused, stays pending and is tried again by itself', async (t) => {
  const clock = new FakeClock();
  const { manager, netns } = await setUp(t, 1, clock);
  manager.sessionOpened();
  const port = await ownPort();
  const taken = createServer().listen(port, '127.0.0.1');
  t.teardown(() => taken.close());
  await once(taken, 'listening');
  await t.throwsAsync(manager.add(info('t', port), netns()));
  manager.snapshot(new Set(['t']));
  t.false(manager.ready);
  taken.close();
  await once(taken, 'close');
  await clock.advance(PENDING_RETRY_MS);
  await until(() => manager.ready, { what: 'the next attempt' });
  t.is(manager.pods.get('t')?.state, 'Up');
  await manager.delete('t');

  // A new session does not know pods that were never served.
  await t.throwsAsync(manager.add(info('v', 1, 'refused'), netns()));
  manager.sessionOpened();
  t.deepEqual(manager.pending, []);
  await t.throwsAsync(manager.add(info('u', 1, 'refused'), netns()), { message: /refused on/ });
  t.deepEqual(manager.pending, ['u']);
  manager.snapshot(new Set(['u']));
  t.false(manager.ready);
  await manager.delete('u');
  t.true(manager.ready);
});

// spec: inpod.md §6
test('a removed pod closes its listener at once and lets its connection finish', async (t) => {
  const { manager, netns } = await setUp(t, 2);
  const port = await ownPort();
  manager.sessionOpened();
  await manager.add(info('u', port), netns());
  manager.snapshot(new Set(['u']));
  const socket = await dial(port);
  await once(socket, 'data');
  await manager.delete('u');
  t.is(manager.pods.size, 0);
  await until(() => refuses(port), { timeoutMs: 5_000, what: 'closed' });
  t.is(socket.destroyed, false);
  await manager.add(info('u', port), netns());
  t.is(manager.pods.get('u')?.state, 'Up', 'enrolled again while the old connection drains');
  socket.destroy();
});

// spec: inpod.md §3
test('the snapshot ends pods it does not name and keeps those it does', async (t) => {
  const { manager, netns } = await setUp(t, 1);
  manager.sessionOpened();
  await manager.add(info('a', await ownPort()), netns());
  await manager.add(info('b', await ownPort()), netns());
  manager.snapshot(new Set(['a', 'b']));
  manager.sessionClosed();
  t.false(manager.ready);
  manager.sessionOpened();
  t.deepEqual([...manager.pods.keys()], ['a', 'b']);
  manager.snapshot(new Set(['b', 'never-seen']));
  t.deepEqual([...manager.pods.keys()], ['b']);
  t.true(manager.ready);
});

test('a thread that dies is replaced, and its pods are served again', async (t) => {
  const { pool, manager, netns, counted, events } = await setUp(t, 1);
  const [crashing, other] = [await ownPort(), await ownPort()];
  await manager.add(info('c', crashing, 'crash'), netns());
  await manager.add(info('o', other), netns());
  (await dial(crashing)).on('error', () => undefined);
  await until(() => counted.lost === 2, { timeoutMs: 20_000, what: 'both pods lost' });
  await until(() => manager.pending.length === 0, { timeoutMs: 20_000, what: 'served again' });
  t.is(events.lostThreads, 1);
  t.is(events.unrecoverable, null);
  t.is(pool.threads.size, 1);
  (await dial(other)).destroy();
});

test('a task that ends by itself is started again', async (t) => {
  const { manager, netns, counted } = await setUp(t, 1);
  const port = await ownPort();
  await manager.add(info('q', port, 'quits'), netns());
  (await dial(port)).on('error', () => undefined);
  await until(() => counted.lost === 1 && manager.pending.length === 0, {
    timeoutMs: 20_000,
    what: 'started again',
  });
  t.is(counted.started, 2);
});

// spec: inpod.md §6
test('a drain waits for connections until its deadline', async (t) => {
  const { manager, netns } = await setUp(t, 1);
  const port = await ownPort();
  await manager.add(info('u', port), netns());
  const socket = await dial(port);
  await once(socket, 'data');
  const drained = manager.drain(60_000);
  await until(() => refuses(port), { timeoutMs: 5_000, what: 'closed' });
  t.false(socket.destroyed);
  socket.destroy();
  await drained;
  await t.throwsAsync(manager.add(info('v', port), netns()), { message: /draining/ });
});

test('an entry that cannot be loaded is reported instead of retried for ever', async (t) => {
  const log = createLogger({ actor: 'test', level: 'silent' });
  const config = nodeProxyConfig.parse({ REDIS_URL: 'unix:///nowhere' });
  const pool = new ListenerPool(
    {
      entry: fileURLToPath(new URL('../../support/no-such.worker.ts', import.meta.url)),
      threads: 1,
      settings: { ...config.listener, node: 'n', logLevel: 'info', logFormat: 'json' },
    },
    {
      clock: systemClock,
      log,
      connectState: () => new MessageChannel().port1,
      certificateNeeded: () => undefined,
      threadLost: () => undefined,
      unrecoverable: () => undefined,
    },
  );
  t.teardown(() => pool.close());
  const error = await t.throwsAsync(pool.start());
  t.true(error instanceof MeshError);
});

async function refuses(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return false;
  } catch {
    return true;
  } finally {
    socket.destroy();
  }
}

test('a shared pod is served by both threads, and by one when the other leaves', async (t) => {
  const { pool, manager, netns } = await setUp(t, 2);
  const port = await ownPort();
  await manager.add(info('u', port), netns());
  const [own] = manager.pods.get('u')?.threads ?? [];
  const other = own === 0 ? 1 : 0;
  await manager.share('u', other);
  t.deepEqual(manager.pods.get('u')?.threads, [own, other]);
  t.deepEqual([...manager.listening()], [{ netnsFd: manager.pods.get('u')?.netnsFd, own: 2 }]);
  await t.throwsAsync(manager.share('u', other), { message: /cannot take the pod/ });
  const sockets: Socket[] = [];
  const served = new Set<string>();
  while (served.size < 2) {
    const socket = await dial(port);
    const [line] = (await once(socket, 'data')) as [Buffer];
    served.add(line.toString().trim());
    sockets.push(socket);
  }
  manager.unshare('u', other);
  t.deepEqual(manager.pods.get('u')?.threads, [own]);
  // The thread that lost the pod still carries connections, so it cannot take the pod again yet.
  t.true(pool.threads.get(other)?.pods.has('u'));
  t.is(sockets.filter((socket) => socket.destroyed).length, 0);
  for (const socket of sockets) socket.destroy();
  await until(() => pool.threads.get(other)?.pods.size === 0, { what: 'its end' });
  await manager.share('u', other);
});

test('a shared pod that is removed ends on every thread, and closes every descriptor', async (t) => {
  const { pool, manager, netns } = await setUp(t, 3);
  const port = await ownPort();
  await manager.add(info('u', port), netns());
  const [own] = manager.pods.get('u')?.threads ?? [];
  for (const thread of pool.threads.keys()) if (thread !== own) await manager.share('u', thread);
  t.is(manager.pods.get('u')?.threads.length, 3);
  await manager.delete('u');
  await until(() => [...pool.threads.values()].every((thread) => thread.pods.size === 0), {
    what: 'its end everywhere',
  });
});

test('a thread that dies takes its share of a pod with it, and the pod goes on', async (t) => {
  const { pool, manager, netns, events } = await setUp(t, 2);
  const port = await ownPort();
  await manager.add(info('u', port), netns());
  const [own] = manager.pods.get('u')?.threads ?? [];
  const other = own === 0 ? 1 : 0;
  await manager.share('u', other);
  await pool.threads.get(other)?.worker.terminate();
  await until(() => events.lostThreads === 1, { what: 'the loss' });
  await until(() => manager.pods.get('u')?.threads.length === 1, { what: 'the share to go' });
  t.is(manager.pods.get('u')?.state, 'Up');
  const socket = await dial(port);
  await once(socket, 'data');
  socket.destroy();
});
