/** Tests the end of the work that spreads the roots. */
import test from 'ava';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { reflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import { MetricRegistry } from '../../../lib/metrics/registry.ts';
import { SpreadText } from '../../../services/ca/kubernetes/config-maps.ts';
import { capturedLog } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';

test('closed before its first lists are complete, it ends', async (t) => {
  const asked: string[] = [];
  // The API server never answers.
  const client = {
    stream: ({ path, signal }: { readonly path: string; readonly signal: AbortSignal }) => {
      asked.push(path);
      const { promise, reject } = Promise.withResolvers<never>();
      signal.addEventListener('abort', () => reject(signal.reason as Error));
      return promise;
    },
  } as unknown as KubernetesClient;
  const { log } = capturedLog();
  const text = new SpreadText(
    { name: 'roots', key: 'pem', selects: () => true, content: () => 'the roots' },
    { client, clock: new FakeClock(), log, reflectors: reflectorMetrics(new MetricRegistry()) },
  );
  const running = text.run();
  t.is(asked.length, 2);
  await text.close();
  await running;
  t.is(asked.length, 2);
});
