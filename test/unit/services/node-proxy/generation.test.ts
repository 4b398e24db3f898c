import test from 'ava';
import { proxyPresenceSample } from '../../../../lib/bus/catalog.ts';
import type { ProxyPresence } from '../../../../lib/bus/catalog.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { admission } from '../../../../services/node-proxy/generation/admission.ts';
import { Generation } from '../../../../services/node-proxy/generation/generation.ts';
import { coveredByOthers } from '../../../../services/node-proxy/generation/handover.ts';
import { PRESENCE_INTERVAL_MS } from '../../../../services/node-proxy/limits.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const web = 'spiffe://cluster.local/ns/demo/sa/web';
/** Every proxy of the node is in Redis. */
const alone = { aloneMs: 0, strangersMs: 0 };
const api = 'spiffe://cluster.local/ns/demo/sa/api';

function other(state: ProxyPresence['state'], missing: readonly string[] = []): ProxyPresence {
  return { ...proxyPresenceSample, state, missing: [...missing] };
}

test('a proxy with every certificate begins, whoever else there is', (t) => {
  t.deepEqual(admission([], null, alone), { admitted: true, because: 'complete' });
  t.deepEqual(admission([], [other('serving')], alone), { admitted: true, because: 'complete' });
});

test('a proxy that lacks certificates begins only where nobody serves', (t) => {
  t.deepEqual(admission([web], [], alone), { admitted: true, because: 'alone' });
  const others = [other('starting'), other('draining')];
  t.deepEqual(admission([web], others, alone), { admitted: true, because: 'alone' });
  const waits = { admitted: false, waitsFor: `1 certificates, one of ${web}` };
  t.deepEqual(admission([web], [other('serving')], alone), waits);
  t.deepEqual(admission([web], [other('draining'), other('serving', [api])], alone), waits);
});

test('a certificate that those who serve lack, too, is not waited for', (t) => {
  t.deepEqual(admission([web], [other('serving', [web])], alone), {
    admitted: true,
    because: 'complete',
  });
  t.false(admission([web], [other('serving', [web]), other('serving')], alone).admitted);
});

test('a proxy that does not know yet who serves waits', (t) => {
  t.like(admission([web], null, alone), { admitted: false });
});

test('a proxy that is not in Redis may serve: certificates are waited for, for a while', (t) => {
  const waits = { admitted: false, waitsFor: `1 certificates, one of ${web}` };
  t.deepEqual(admission([web], [], { aloneMs: 14, strangersMs: 15 }), waits);
  const over = { aloneMs: 15, strangersMs: 15 };
  t.deepEqual(admission([web], [], over), { admitted: true, because: 'alone' });
  t.deepEqual(admission([web], [other('serving')], over), waits);
  t.deepEqual(admission([], [], { aloneMs: 0, strangersMs: 15 }), {
    admitted: true,
    because: 'complete',
  });
});

test('a start counts the time without a proxy in sight from the last one that it saw', async (t) => {
  const clock = new FakeClock();
  let members: ReadonlyMap<string, ProxyPresence> | null = null;
  const generation = new Generation(
    { group: 1, member: 'one', handoverMs: 0, strangersMs: 5_000, podPorts: [] },
    {
      clock,
      log: createLogger({ actor: 'test', level: 'off' }),
      presence: {
        announce: async () => {
          if (members === null) throw new MeshError('BUS_UNAVAILABLE', 'Redis is away');
        },
        members: async () => members ?? new Map(),
        leave: async () => undefined,
      },
      waits: () => undefined,
      serves: () => false,
      missing: () => [web],
      pods: () => [],
      ports: () => ({}),
      listenersByPort: () => new Map(),
      residentBytes: () => 1,
    },
  );
  let admitted = false;
  void generation.admitted(new AbortController().signal).then((value) => {
    admitted = value;
  });
  await clock.advance(20_000);
  t.false(admitted, 'Redis is away');
  members = new Map([['two', other('serving')]]);
  await clock.advance(20_000);
  t.false(admitted, 'another one serves');
  // Redis was replaced, or the other one is late.
  members = new Map();
  await clock.advance(4_000);
  members = new Map([['two', other('serving')]]);
  await clock.advance(1_000);
  members = new Map([['two', other('draining')]]);
  await clock.advance(4_500);
  t.false(admitted);
  await clock.advance(2_000);
  t.true(admitted);
  await generation.close();
});

test('pods are covered when each port has more listeners than our own', (t) => {
  const listeners = (counts: Record<number, number>) => () =>
    new Map(Object.entries(counts).map(([port, count]) => [Number(port), count]));
  const pods = [{ netnsFd: 3, own: 2 }];
  t.true(coveredByOthers([], [1], listeners({})));
  t.false(coveredByOthers(pods, [1, 2], listeners({ 1: 2, 2: 3 })));
  t.false(coveredByOthers(pods, [1, 2], listeners({ 1: 3 })));
  t.true(coveredByOthers(pods, [1, 2], listeners({ 1: 3, 2: 3 })));
  const gone = () => {
    throw new MeshError('NATIVE_SYSCALL', 'setns');
  };
  t.true(coveredByOthers(pods, [1], gone));
});

test('a proxy that cannot read how much memory it has still says that it is there', async (t) => {
  const said: ProxyPresence[] = [];
  let readable = true;
  const clock = new FakeClock();
  const generation = new Generation(
    { group: 1, member: 'one', handoverMs: 0, strangersMs: 0, podPorts: [] },
    {
      clock,
      log: createLogger({ actor: 'test', level: 'off' }),
      presence: {
        announce: async (_member, body) => void said.push(body),
        members: async () => new Map(),
        leave: async () => undefined,
      },
      waits: () => undefined,
      serves: () => true,
      missing: () => [],
      pods: () => [],
      ports: () => ({}),
      listenersByPort: () => new Map(),
      residentBytes: () => {
        if (readable) return 4_711;
        throw new Error('EMFILE: too many open files, uv_resident_set_memory');
      },
    },
  );
  await clock.advance(PRESENCE_INTERVAL_MS);
  readable = false;
  const before = said.length;
  await clock.advance(PRESENCE_INTERVAL_MS);
  t.is(said.length, before + 1);
  t.is(said.at(-1)?.residentBytes, 4_711);
  await generation.close();
});

test('a pod that cannot be looked at for want of a descriptor is not covered', (t) => {
  const pods = [{ netnsFd: 3, own: 2 }];
  const exhausted = () => {
    throw new MeshError('NATIVE_SYSCALL', 'socket', { detail: { errno: 'EMFILE' } });
  };
  t.false(coveredByOthers(pods, [1], exhausted));
});
