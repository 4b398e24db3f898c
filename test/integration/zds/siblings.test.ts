/** Tests how the proxies of a node share one session with a node agent that knows no generations, over real sockets. */
import { mkdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { closeFd, netnsIdentity, openNetns } from '../../../lib/linux/netns.ts';
import { lockFile } from '../../../lib/linux/file-lock.ts';
import { connectSeqpacket } from '../../../lib/linux/seqpacket.ts';
import type { SeqpacketConnection } from '../../../lib/linux/seqpacket.ts';
import { decodeRequest, encodeAck, encodeHello } from '../../../lib/zds/frames.ts';
import { MAX_PODS } from '../../../services/node-proxy/limits.ts';
import { HandedPods } from '../../../services/node-proxy/pods/handed-pods.ts';
import { SharedSession } from '../../../services/node-proxy/pods/shared-session.ts';
import { keptLog } from '../../support/actor-context.ts';
import type { LogLine } from '../../support/actor-context.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { GONE, NewestAgent } from '../../support/newest-agent.ts';
import { until } from '../../support/until.ts';

const NETNS = '/proc/self/ns/net';

/** A proxy reduced to its session: its pods have no listeners. */
class Sibling {
  readonly served = new Map<string, string>();
  /** Pods placed and stopped, such as `+u-1` and `-u-1`; a pod that is served already is not placed again. */
  readonly told: string[] = [];
  /** Snapshots that were complete. */
  snapshots = 0;
  refuses = false;
  readonly lines: readonly LogLine[];
  readonly session: SharedSession;

  constructor(paths: { path: string; agentPath: string }, group: number, clock = systemClock) {
    const { log, lines } = keptLog('node-proxy');
    this.lines = lines;
    this.session = new SharedSession(
      { ...paths, group, clock, log },
      {
        sessionStarted: () => undefined,
        sessionEnded: () => undefined,
        add: async (uid, _info, fd) => {
          const { inode } = netnsIdentity(fd);
          closeFd(fd);
          if (this.refuses) throw new Error('no room');
          if (this.served.get(uid) === inode) return;
          this.served.set(uid, inode);
          this.told.push(`+${uid}`);
        },
        del: async (uid) => this.#stop(uid),
        snapshot: async (uids) => {
          for (const uid of this.served.keys()) if (!uids.has(uid)) this.#stop(uid);
          this.snapshots += 1;
        },
      },
    );
  }

  get holds(): boolean {
    return this.session.siblings !== null;
  }

  get pods(): string {
    return [...this.served.keys()].toSorted().join();
  }

  logged(message: string): readonly LogLine[] {
    return this.lines.filter((line) => line.message === message);
  }

  #stop(uid: string): void {
    if (this.served.delete(uid)) this.told.push(`-${uid}`);
  }
}

async function node(t: ExecutionContext): Promise<{
  agent: NewestAgent;
  path: string;
  join: (group?: number, clock?: typeof systemClock) => Sibling;
}> {
  const dir = await makeScratch('siblings');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const paths = { path: join(dir, 'own', 's.sock'), agentPath: join(dir, 'z.sock') };
  const agent = new NewestAgent(t, paths.agentPath);
  return {
    agent,
    path: paths.path,
    join: (group = 0, clock = systemClock) => {
      const sibling = new Sibling(paths, group, clock);
      t.teardown(() => sibling.session.close());
      sibling.session.start();
      return sibling;
    },
  };
}

/** Waits until the holder's snapshot is complete and so many siblings have theirs. */
async function joined(holder: Sibling, ...others: readonly Sibling[]): Promise<void> {
  await until(() => holder.snapshots > 0 && others.every(({ snapshots }) => snapshots > 0), {
    what: 'the snapshots',
  });
}

test('a lock has one holder, and is free once that releases it', async (t) => {
  const dir = await makeScratch('lock');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'file.lock');
  const lock = lockFile(path);
  t.not(lock, null);
  t.is(lockFile(path), null);
  lock?.release();
  const next = lockFile(path);
  t.not(next, null);
  next?.release();
  t.throws(() => lockFile(join(dir, 'none', 'file.lock')), { code: 'NATIVE_SYSCALL' });
});

test('proxies of a node share its pods by one session with the agent', async (t) => {
  const { agent, join: start } = await node(t);
  t.is(await agent.add('u-1', NETNS), GONE);
  const [one, two, three] = [start(), start(), start()];
  await joined(one, two, three);
  t.is(await agent.add('u-2', NETNS), null);
  // The answer means that all of them serve the pod.
  t.deepEqual([one.pods, two.pods, three.pods], ['u-1,u-2', 'u-1,u-2', 'u-1,u-2']);
  t.deepEqual(await agent.del('u-1'), [null]);
  t.deepEqual([one.pods, two.pods, three.pods], ['u-2', 'u-2', 'u-2']);
  t.is(agent.accepted, 1);
  t.deepEqual([one.session.siblings, two.session.siblings], [2, null]);
  t.is(one.logged('zds.holder-elected').length, 1);
});

test('siblings hear of a snapshot only when the holder has the whole of it', async (t) => {
  const { agent, join: start } = await node(t);
  await agent.add('u-1', NETNS);
  const one = start();
  const two = start();
  await joined(one, two);
  agent.completes = false;
  agent.close();
  await one.session.close();
  await until(() => two.holds, { what: 'the next holder' });
  agent.listen();
  const three = start();
  await until(() => agent.accepted === 2, { what: 'its session' });
  await agent.add('u-2', NETNS);
  t.is(two.pods, 'u-1,u-2');
  t.deepEqual([three.snapshots, three.pods], [0, '']);
  agent.completes = true;
  agent.close();
  agent.listen();
  await joined(two, three);
  t.is(three.pods, 'u-1,u-2');
  t.deepEqual(two.told, ['+u-1', '+u-2']);
});

test('another proxy holds the session when the holder ends, and no pod is placed again', async (t) => {
  const { agent, join: start } = await node(t);
  await agent.add('u-1', NETNS);
  await agent.add('u-2', null);
  const [one, two, three] = [start(), start(), start()];
  await joined(one, two, three);
  const before = [two, three].map(({ snapshots }) => snapshots);
  await one.session.close();
  const answers = await agent.del('u-1');
  t.true(
    answers.every((answer) => answer === GONE),
    'nobody holds the session',
  );
  await until(
    () => [two, three].every(({ snapshots }, index) => snapshots > (before[index] ?? 0)),
    {
      what: 'the snapshots after it',
    },
  );
  t.is(await agent.add('u-3', NETNS), null);
  t.deepEqual(
    [two.told, three.told],
    [
      ['+u-1', '-u-1', '+u-3'],
      ['+u-1', '-u-1', '+u-3'],
    ],
  );
  t.is(agent.accepted, 2);
});

test('a session that the agent begins anew tells siblings of the pods that left meanwhile', async (t) => {
  const { agent, join: start } = await node(t);
  await agent.add('u-1', NETNS);
  await agent.add('u-2', NETNS);
  const [one, two] = [start(), start()];
  await joined(one, two);
  agent.close();
  t.deepEqual(await agent.del('u-1'), []);
  agent.listen();
  await until(() => two.pods === 'u-2', { what: 'the removal' });
  t.deepEqual(
    [one.told, two.told],
    [
      ['+u-1', '+u-2', '-u-1'],
      ['+u-1', '+u-2', '-u-1'],
    ],
  );
  t.is(two.snapshots, 1, 'its session goes on');
});

test('a holder that drains leaves the session to a sibling and still learns of removals', async (t) => {
  const { agent, join: start } = await node(t);
  for (const uid of ['u-1', 'u-2', 'u-3']) await agent.add(uid, NETNS);
  const [one, two] = [start(), start()];
  await joined(one, two);
  one.session.drain();
  t.deepEqual(await agent.del('u-1'), [null]);
  t.is(one.pods, 'u-2,u-3', 'its own session goes on until the next holder knows the pods');
  await until(() => two.holds && agent.accepted === 2 && agent.sessions.length === 1, {
    what: 'the next holder alone',
  });
  t.deepEqual(await agent.del('u-2'), [null]);
  t.is(await agent.add('u-4', NETNS), null);
  t.deepEqual([one.pods, two.pods], ['u-3', 'u-3,u-4']);
  t.is(one.logged('zds.holder-resigned').length, 1);
  two.session.drain();
  await agent.del('u-3');
  t.is(two.pods, 'u-4', 'the last one has nobody to leave the session to');
});

test('a sibling that drains gets no new pod, and removals', async (t) => {
  const { agent, join: start } = await node(t);
  await agent.add('u-1', NETNS);
  const [one, two] = [start(), start()];
  await joined(one, two);
  two.session.drain();
  await until(() => two.snapshots === 2, { what: 'a snapshot of pods to keep' });
  t.is(await agent.add('u-2', NETNS), null);
  await agent.del('u-1');
  t.deepEqual([one.pods, two.pods], ['u-2', '']);
});

test('new pods go to the holder and to the newest generation', async (t) => {
  const { agent, join: start } = await node(t);
  const [one, old, next] = [start(2), start(1), start(2)];
  await joined(one, old, next);
  t.is(await agent.add('u-1', NETNS), null);
  t.deepEqual([one.pods, old.pods, next.pods], ['u-1', '', 'u-1']);
  const newest = start(3);
  await joined(one, newest);
  t.is(await agent.add('u-2', NETNS), null);
  t.deepEqual([one.pods, old.pods, next.pods, newest.pods], ['u-1,u-2', '', 'u-1', 'u-1,u-2']);
  await newest.session.close();
  await until(() => next.pods === 'u-1,u-2', { what: 'the pods of a generation that is gone' });
  t.is(old.pods, '');
});

test('the answer names the sibling that refuses a pod, and the others serve it', async (t) => {
  const { agent, join: start } = await node(t);
  const [one, two, three] = [start(), start(), start()];
  await joined(one, two, three);
  two.refuses = true;
  t.is(
    await agent.add('u-1', NETNS),
    `add of pod u-1 was refused by process ${process.pid}: no room`,
  );
  t.deepEqual([one.pods, three.pods], ['u-1', 'u-1']);
  one.refuses = true;
  t.regex((await agent.add('u-2', NETNS)) ?? '', /process \d+: no room; no room$/);
  t.is(one.logged('zds.handing-failed').length, 2);
});

/** Connects a sibling that answers only what the test says. */
async function mute(
  t: ExecutionContext,
  path: string,
): Promise<{ connection: SeqpacketConnection; got: string[] }> {
  const connection = await until(() => connectSeqpacket(path), { what: 'the holder to listen' });
  t.teardown(() => connection.close());
  const got: string[] = [];
  connection.onMessage = ({ data, fds }) => {
    const request = decodeRequest(data);
    got.push(`${request.type}${'uid' in request ? ` ${request.uid}` : ''}`);
    for (const fd of fds) closeFd(fd);
    if (request.type === 'snapshotSent') void connection.send(encodeAck(null));
  };
  await connection.send(encodeHello({ group: 0, state: 'serving' }));
  await until(() => got.length > 0, { what: 'its snapshot' });
  return { connection, got };
}

test('the answer names a sibling that hangs, before the agent gives up on it', async (t) => {
  const clock = new FakeClock();
  const { agent, path, join: start } = await node(t);
  const holder = start(0, clock);
  const { got, connection } = await mute(t, path);
  const answer = agent.add('u-1', NETNS);
  await until(() => got.includes('add u-1'), { what: 'Add' });
  await until(() => holder.pods === 'u-1', { what: 'the holder to serve it' });
  await clock.advance(4_000);
  t.is(await answer, `pod u-1 is not served by process ${process.pid} after 4000 ms`);
  t.like(holder.logged('zds.handing-failed')[0], { uid: 'u-1', pids: [process.pid] });

  const removed = agent.del('u-1');
  await until(() => holder.pods === '', { what: 'the holder to stop' });
  await clock.advance(4_000);
  t.regex((await removed)[0] ?? '', /did not answer del of pod u-1 within 4000 ms/);
  // The late answer to Add does not bring the pod back.
  await connection.send(encodeAck(null));
  await until(() => got.includes('del u-1'), { what: 'Del' });
  await connection.send(encodeAck(null));
  const last = agent.add('u-2', NETNS);
  await until(() => got.includes('add u-2'), { what: 'the next Add' });
  await connection.send(encodeAck(null));
  t.is(await last, null);
  t.deepEqual(got, ['snapshotSent', 'add u-1', 'del u-1', 'add u-2']);
});

test('a sibling that ends while it is handed a pod does not count', async (t) => {
  const { agent, path, join: start } = await node(t);
  start();
  const { got, connection } = await mute(t, path);
  const answer = agent.add('u-1', NETNS);
  await until(() => got.includes('add u-1'), { what: 'Add' });
  connection.close();
  t.is(await answer, null);
});

test('a holder that cannot listen serves its pods, and listens when it can', async (t) => {
  const { agent, path, join: start } = await node(t);
  await mkdir(path, { recursive: true });
  await agent.add('u-1', NETNS);
  const one = start();
  await until(() => one.logged('zds.listen-failed').length > 0, { what: 'the failure' });
  t.is(one.pods, 'u-1');
  t.is(await agent.add('u-2', NETNS), null);
  const two = start();
  await rmdir(path);
  await joined(one, two);
  t.is(two.pods, 'u-1,u-2');
});

test('no more pods are handed on than a proxy serves', async (t) => {
  const dir = await makeScratch('handed');
  const { log } = keptLog('node-proxy');
  const handed = new HandedPods({ path: join(dir, 's.sock'), group: 0, clock: systemClock, log });
  const netnsFd = openNetns(NETNS);
  t.teardown(async () => {
    handed.close();
    closeFd(netnsFd);
    await rm(dir, { recursive: true, force: true });
  });
  const uids = Array.from({ length: MAX_PODS }, (_, index) => `u-${index}`);
  await handed.complete(new Set(uids));
  const info = { name: 'web', namespace: 'demo', serviceAccount: 'web' };
  await t.throwsAsync(handed.add('one-more', info, netnsFd), { code: 'STATE_UNAVAILABLE' });
  await handed.add('u-0', info, netnsFd);
  await handed.remove('u-1');
  await handed.add('one-more', info, netnsFd);
  t.pass();
});
