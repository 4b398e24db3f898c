import test from 'ava';
import {
  MAX_LISTENER_THREADS,
  listenerThreads,
  parseCpuQuantity,
  parseThreadSetting,
} from '../../../../services/node-proxy/config/worker-threads.ts';
import { leastLoaded } from '../../../../services/node-proxy/pool/placement.ts';

const none = { setting: null, cpuLimit: null, cpuRequest: null, concurrency: null };

test('without settings a quarter of the cores is used, at least two', (t) => {
  t.is(listenerThreads({ ...none, cores: 1 }), 2);
  t.is(listenerThreads({ ...none, cores: 9 }), 3);
  t.is(listenerThreads({ ...none, cores: 64 }), 16);
  t.is(listenerThreads({ ...none, cores: 4, cpuRequest: 3 }), 3);
});

test('a limit decides, raised to the request', (t) => {
  t.is(listenerThreads({ ...none, cores: 64, cpuLimit: 1 }), 1);
  t.is(listenerThreads({ ...none, cores: 64, cpuLimit: 1.5, cpuRequest: 4 }), 4);
});

test('an explicit setting decides, and concurrency overrides it', (t) => {
  const fifty = parseThreadSetting('50%');
  t.is(listenerThreads({ ...none, cores: 5, setting: fifty }), 3);
  t.is(listenerThreads({ ...none, cores: 5, setting: parseThreadSetting('0') }), 5);
  t.is(listenerThreads({ ...none, cores: 5, setting: fifty, concurrency: 0 }), 5);
  t.is(listenerThreads({ ...none, cores: 5, setting: fifty, concurrency: 1 }), 1);
  t.is(listenerThreads({ ...none, cores: 4_096, concurrency: 0 }), MAX_LISTENER_THREADS);
});

test('what is neither a number nor a share is refused', (t) => {
  for (const text of ['-1', '0%', '101%', '2.5', 'all', '999']) {
    t.throws(() => parseThreadSetting(text), { message: /must be/ }, text);
  }
  t.is(parseCpuQuantity('500m'), 0.5);
  t.throws(() => parseCpuQuantity('1 core'));
});

const load = (thread: number, pods: number, utilisation: number) => ({ thread, pods, utilisation });

test('a pod goes to the thread with the fewest pods that is not saturated', (t) => {
  t.is(leastLoaded([load(0, 3, 0.1), load(1, 1, 0.5), load(2, 1, 0.2)]), 2);
  t.is(leastLoaded([load(0, 3, 0.1), load(1, 0, 0.9)]), 0);
  t.is(leastLoaded([load(1, 0, 0.9), load(0, 0, 0.9)]), 0);
  t.is(leastLoaded([]), null);
});
