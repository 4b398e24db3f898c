import { once } from 'node:events';
import { createHistogram } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import type { MessagePort } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import type { Workload } from '../../../lib/state/model.ts';
import { serviceKey } from '../../../lib/state/model.ts';
import { encodeService, encodeWorkload } from '../../../lib/xds/resources/address.ts';
import { followTables } from '../../../services/node-proxy/state-thread/state-feed.ts';
import { StateThread } from '../../../services/node-proxy/state-thread/state-thread.ts';
import type { StateResponse } from '../../../workers/listener/protocol/state.ts';
import { StateClient } from '../../../workers/listener/state-client.ts';
import { heldLease, openBus } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { serviceFixture, workloadFixture } from '../../support/model-fixtures.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const WORKLOADS = 10_000;
const ENDPOINTS = 5_000;

function workloadRow(index: number, trustDomain = 'cluster.local'): [string, Uint8Array] {
  const uid = `Kubernetes//Pod/demo/pod-${index}`;
  const ip = `10.${100 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
  const described = workloadFixture({ uid, name: `pod-${index}`, addresses: [ip], trustDomain });
  return [uid, encodeWorkload(described)];
}

async function startState(t: ExecutionContext, ownThread: boolean) {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('xds-ingester'), 'ingester');
  const lease = await heldLease(bus, 'ingest', 'mesh');
  const addresses = bus.writer('addresses', 'mesh', lease);
  await bus.writer('rejections', 'mesh', lease).replaceAll([]);
  await bus.writer('authorizations', 'mesh', lease).replaceAll([]);
  const events = { ready: 0, failed: 0, identities: [] as string[] };
  const thread = new StateThread(
    {
      node: 'node-1',
      dedicatedTo: null,
      logLevel: 'silent',
      logFormat: 'json',
      policyUnknownReference: 'deny',
    },
    ownThread,
    systemClock,
    {
      ready: () => (events.ready += 1),
      identities: (identities) => (events.identities = [...identities]),
      want: () => undefined,
      failed: () => (events.failed += 1),
    },
  );
  t.teardown(() => thread.close());
  const own = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy').bus;
  const feed = followTables(own, (table, step) => thread.feed(table, step));
  t.teardown(() => feed.close());
  const port = thread.connect(0);
  t.teardown(() => port.close());
  return { redis, addresses, thread, events, port };
}

let nextId = 1;

async function lookup(port: MessagePort, uid: string): Promise<string | null | undefined> {
  const id = nextId;
  nextId += 1;
  port.postMessage({ type: 'lookup', id, keys: [{ kind: 'uid', uid }] });
  for (;;) {
    const [message] = (await once(port, 'message')) as [StateResponse];
    if (message.type !== 'answer' || message.id !== id) continue;
    const [answer] = message.answers;
    return answer === null || answer === undefined ? null : answer.workloads[0]?.trustDomain;
  }
}

// As the launcher does, for later threads.
setFlagsFromString('--expose-gc');

// One after another: together they would keep a busy machine from renewing and answering in time.
for (const own of [true, false]) {
  const where = own ? '' : " (state on the caller's thread)";

  test.serial(
    `lookups are answered between slices of a full re-sync, from the old state until it is complete${where}`,
    async (t) => {
      const { addresses, thread, events, port } = await startState(t, own);
      t.is(await lookup(port, 'any'), null, 'cannot tell yet');
      await addresses.replaceAll(
        Array.from({ length: WORKLOADS }, (_, index) => workloadRow(index)),
      );
      await until(() => events.ready === 1, { what: 'the first copy', timeoutMs: 60_000 });
      const uid = `Kubernetes//Pod/demo/pod-${WORKLOADS - 1}`;
      t.is(await lookup(port, uid), 'cluster.local');
      t.deepEqual(events.identities, ['spiffe://cluster.local/ns/demo/sa/web']);

      const replaced = addresses.replaceAll(
        Array.from({ length: WORKLOADS }, (_, index) => workloadRow(index, 'new')),
      );
      const latency = createHistogram();
      let lookups = 0;
      for (let answer = 'cluster.local' as string | null | undefined; answer !== 'new';) {
        const start = performance.now();
        answer = await lookup(port, uid);
        latency.record(Math.max(1, Math.round((performance.now() - start) * 1_000)));
        lookups += 1;
        t.true(answer === 'cluster.local' || answer === 'new', `never unknown, was ${answer}`);
      }
      await replaced;
      t.log(`${lookups} lookups during the re-sync, p99 ${latency.percentile(99) / 1e3} ms`);
      t.true(lookups > 20, 'lookups are answered while the copy is taken in');
      await until(() => thread.stats?.workloads === WORKLOADS, { what: 'the gauges' });

      const uids: string[] = [];
      for await (const text of thread.dump('workloads')) {
        for (const { uid } of JSON.parse(`[${text}]`) as { uid: string }[]) uids.push(uid);
      }
      t.is(uids.length, WORKLOADS);
      t.deepEqual(uids, [...uids].sort(), 'sorted by uid');
      t.is(events.failed, 0);
    },
  );

  test.serial(
    `a thread asks once about a service of many endpoints, and follows each of them${where}`,
    async (t) => {
      const { addresses, thread, events, port } = await startState(t, own);
      const web = serviceFixture();
      const member = (index: number, status: Workload['status']): [string, Uint8Array] => {
        const uid = `Kubernetes//Pod/demo/pod-${index}`;
        const services = { [serviceKey(web)]: { 80: 8080 } };
        const ip = `10.100.${index >> 8}.${index & 255}`;
        const fields = { uid, name: `pod-${index}`, addresses: [ip], services, status };
        return [uid, encodeWorkload(workloadFixture(fields))];
      };
      const members = Array.from({ length: ENDPOINTS }, (_, index) => member(index, 'HEALTHY'));
      await addresses.replaceAll([[serviceKey(web), encodeService(web)], ...members]);
      await until(() => events.ready === 1, { what: 'the first copy', timeoutMs: 60_000 });
      let told = 0;
      port.on('message', (message: StateResponse) => {
        if (message.type === 'endpoints') told += message.endpoints.length;
      });
      // A fake clock, because a busy machine may take longer than a connection would wait.
      const client = new StateClient(port, new FakeClock());
      const { namespace, hostname } = web;
      const byName = { kind: 'service', namespace, hostname } as const;
      const byHost = { kind: 'hostname', hostname } as const;
      await client.fetch([byName]);
      const endpoints = client.get(byName)?.services[0]?.endpoints;
      t.is(endpoints?.size, ENDPOINTS);
      await client.fetch([byHost]);
      t.is(client.get(byHost)?.services[0]?.endpoints, endpoints, 'answers share them');
      t.is(told, ENDPOINTS);
      const [uid, value] = member(7, 'UNHEALTHY');
      await addresses.apply([{ key: uid, value }]);
      await until(() => endpoints?.has(uid) === false, { what: 'the endpoint to go' });
      t.is(client.get(byName)?.services[0]?.endpoints, endpoints, 'the answer stays');
      t.deepEqual([told, endpoints?.size], [ENDPOINTS + 1, ENDPOINTS - 1]);
      await until(() => thread.stats?.lookups === 2, { what: 'the gauges' });
      t.is(client.heldEndpoints, ENDPOINTS);
    },
  );

  test.serial(`the state answers when memory was given back${where}`, async (t) => {
    const { addresses, thread, events, port } = await startState(t, own);
    await addresses.replaceAll([workloadRow(0)]);
    await until(() => events.ready === 1, { what: 'the state' });
    thread.releaseMemory();
    t.is(await lookup(port, 'Kubernetes//Pod/demo/pod-0'), 'cluster.local');
    t.is(events.failed, 0);
  });

  test.serial(
    `the state stays when Redis goes, and follows it when it is back${where}`,
    async (t) => {
      const { redis, addresses, events, port } = await startState(t, own);
      await addresses.replaceAll([workloadRow(1)]);
      await until(() => events.ready === 1, { what: 'the first copy' });
      const uid = workloadRow(1)[0];
      await redis.kill();
      t.is(await lookup(port, uid), 'cluster.local');
      await redis.start();
      await until(
        async () => {
          // As the ingester does: it rewrites everything after Redis lost its data.
          await addresses.replaceAll([workloadRow(1, 'later')]);
          return true;
        },
        { what: 'the ingester to write again', timeoutMs: 30_000 },
      );
      await until(async () => (await lookup(port, uid)) === 'later', {
        what: 'the state of the new epoch',
        timeoutMs: 30_000,
      });
    },
  );

  test.serial(`a state thread that dies is told${where}`, async (t) => {
    const events = { failed: [] as string[] };
    const thread = new StateThread(
      {
        node: 'node-1',
        dedicatedTo: null,
        logLevel: 'silent',
        logFormat: 'json',
        policyUnknownReference: 'deny',
      },
      own,
      systemClock,
      {
        ready: () => undefined,
        identities: () => undefined,
        want: () => undefined,
        failed: (error) => events.failed.push(error.code),
      },
    );
    t.teardown(() => thread.close());
    // No feeder makes this step; the thread's own consistency check ends the thread.
    await thread.feed('addresses', {
      kind: 'changes',
      rows: { keys: ['a', 'b'], ends: new Int32Array(1), data: new Uint8Array(0) },
    });
    await until(() => events.failed.length === 1, { what: 'the loss' });
    t.deepEqual(events.failed, ['ACTOR_FAILED']);
    await t.throwsAsync(thread.dump('workloads').next(), { message: /state thread/ });
  });
}
