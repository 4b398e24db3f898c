/** The work that a change of the mesh costs a thread with many peers. */
import test from 'ava';
import type { TunnelEnd } from '../../../../lib/hbone/engine.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { lookupId } from '../../../../lib/state/view.ts';
import { ThreadMetrics } from '../../../../workers/listener/telemetry/thread-metrics.ts';
import { PeerWatch } from '../../../../workers/listener/tunnel/peer-watch.ts';
import { until } from '../../../support/until.ts';

const PEERS = 1_000;

test('a change touches the peers that it names, and all of them only when it names none', async (t) => {
  const asked: string[] = [];
  const probed: string[] = [];
  let invalidate: (ids: readonly string[] | null) => void = () => t.fail('nobody listens');
  /** Peers whose lookup was made; each needs the network. */
  let touched = 0;
  const watch = new PeerWatch({
    state: {
      ask: async (key) => {
        asked.push(lookupId(key));
        return { workloads: [], services: [] };
      },
      onInvalidate: (listener) => {
        invalidate = listener;
      },
    },
    get network() {
      touched += 1;
      return 'net';
    },
    log: createLogger({ actor: 'test', level: 'silent' }),
    metrics: new ThreadMetrics(0),
  });
  const ips = Array.from({ length: PEERS }, (_, index) => `10.0.${index >> 8}.${index & 255}`);
  const ends = ips.map((ip) => {
    const { promise: closed, resolve } = Promise.withResolvers<TunnelEnd>();
    const peer = { identity: 'spiffe://cluster.local/ns/demo/sa/web' };
    const probe = async (): Promise<boolean> => {
      probed.push(ip);
      return true;
    };
    watch.add(ip, { closed, peer, probe });
    return resolve;
  });
  const idOf = (ip: string): string => lookupId({ kind: 'address', network: 'net', ip });

  touched = 0;
  invalidate([idOf('192.0.2.1'), 'hostname:web', idOf('10.0.1.7')]);
  await until(() => probed.length === 1, { what: 'the probe of the named peer' });
  t.deepEqual([asked, probed, touched], [[idOf('10.0.1.7')], ['10.0.1.7'], 1]);

  invalidate(null);
  await until(() => probed.length === 1 + PEERS, { what: 'the probes of all peers' });
  t.is(new Set(asked).size, PEERS);

  for (const end of ends) end('drained');
  await until(
    () => {
      const before = asked.length;
      invalidate(null);
      return asked.length === before;
    },
    { what: 'the last tunnel to be forgotten' },
  );
});
