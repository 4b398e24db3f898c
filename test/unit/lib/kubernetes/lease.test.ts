/** Tests leadership where the API server is slow; test/kubernetes has a real one. */
import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../../../lib/kubernetes/client.ts';
import { LeaseCandidate } from '../../../../lib/kubernetes/lease.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { until } from '../../../support/until.ts';

/** A process that is held up for less than three seconds cannot become a second leader. */
const TIMES = { durationMs: 5_000, renewDeadlineMs: 2_000, retryMs: 100 };

interface StoredLease {
  readonly metadata: { readonly resourceVersion: string };
  readonly spec: { readonly holderIdentity: string };
}

/** An API server that stores writes at once, and answers the first one when it is told to. */
function slowServer() {
  let stored: StoredLease = { metadata: { resourceVersion: '1' }, spec: { holderIdentity: '' } };
  const answer = Promise.withResolvers<void>();
  let writes = 0;
  const read = (): Promise<unknown> => Promise.resolve(structuredClone(stored));
  const client: Pick<KubernetesClient, 'get' | 'request' | 'replace'> = {
    get: read,
    request: read,
    async replace(_path, body, signal) {
      const next = body as StoredLease;
      if (next.metadata.resourceVersion !== stored.metadata.resourceVersion) {
        throw new MeshError('KUBERNETES_CONFLICT', 'another was quicker');
      }
      writes += 1;
      const isFirst = writes === 1;
      stored = { ...next, metadata: { resourceVersion: String(writes + 1) } };
      if (!isFirst) return;
      const ended = Promise.withResolvers<never>();
      signal?.addEventListener('abort', () => ended.reject(signal.reason), { once: true });
      await Promise.race([answer.promise, ended.promise]);
    },
  };
  return {
    client: client as KubernetesClient,
    answer: () => answer.resolve(),
    writes: () => writes,
    holder: () => stored.spec.holderIdentity,
  };
}

test('a candidate whose write was answered too late does not lead beside another', async (t) => {
  const server = slowServer();
  const leaders = new Set<string>();
  let both = false;
  const compete = (identity: string) => {
    const { log, lines } = keptLog('test');
    const candidate = new LeaseCandidate(
      { namespace: 'a', name: 'election', identity, times: TIMES },
      { client: server.client, clock: systemClock, log },
    );
    void candidate.run(async (signal) => {
      leaders.add(identity);
      both ||= leaders.size > 1;
      await new Promise<void>((resolve) => {
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
      leaders.delete(identity);
    });
    t.teardown(() => candidate.close());
    return lines;
  };
  const slow = compete('slow');
  await until(() => server.holder() === 'slow', { what: 'the write that is not answered' });
  compete('other');
  await until(() => leaders.size === 1, { what: 'one leads' });
  const before = server.writes();
  server.answer();
  await until(() => server.writes() > before + 3, { what: 'it renews' });
  t.false(both);
  const failed = slow.find(({ message }) => message === 'lease.attempt-failed');
  // A pause before the write shortens the time that is left for its answer.
  t.regex(String(failed?.['problem']), /^no answer within \d+ ms$/);
});
