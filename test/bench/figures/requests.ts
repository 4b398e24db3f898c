/** Measures requests over kept and over new connections, in closed loops: a slow answer lowers the rate. */
import { closedLoop, throughput } from '../lib/loads.ts';
import type { Goal } from '../lib/goal.ts';
import type { Measurement } from '../lib/measurement.ts';
import { PEERS_OF } from '../lib/rig.ts';
import type { PeerName } from '../lib/rig.ts';

/** The `http2` pair also runs in place of the listeners, to show the cost of redirection. */
const OF_REQUESTS: readonly PeerName[] = [...PEERS_OF.nodes, 'in-pod'];
/** The relay pair without HTTP/2 makes a handshake for each connection, so it is not a ceiling here. */
const OF_NEW_CONNECTIONS = OF_REQUESTS.filter((peer) => peer !== 'tls');

/** Latency of one client that sends the next request as soon as it has the answer. */
const alone: Measurement = {
  path: 'nodes',
  peers: OF_REQUESTS,
  figures: [
    {
      label: 'requests, 1 connection, p50 µs',
      digits: 0,
      goal: { against: 'haproxy', most: 1.03 },
    },
    {
      label: 'requests, 1 connection, p99 µs',
      digits: 0,
      goal: { against: 'haproxy', most: 1.06 },
    },
  ],
  run: async (target, seconds) => {
    const { p50, p99 } = await closedLoop(target, { connections: 1, seconds });
    return [p50 * 1_000, p99 * 1_000];
  },
};

/** The same beside a bulk stream, which a proxy may let go first. */
const beside: Measurement = {
  path: 'nodes',
  figures: [
    {
      label: 'requests, 1 connection beside a bulk one, p50 µs',
      digits: 0,
      goal: { against: 'ztunnel', most: 0.2 },
    },
    { label: 'requests, 1 connection beside a bulk one, p99 µs', digits: 0 },
  ],
  run: async (target, seconds) => {
    const [{ p50, p99 }] = await Promise.all([
      closedLoop(target, { connections: 1, seconds }),
      throughput(target, { connections: 1, seconds, down: true }),
    ]);
    return [p50 * 1_000, p99 * 1_000];
  },
};

function many(connections: number, rate: Goal, tail: Goal, short?: 'weft' | 'all'): Measurement {
  const name = `requests, ${connections} connections`;
  return {
    path: 'nodes',
    peers: OF_REQUESTS,
    ...(short === undefined ? {} : { short }),
    figures: [
      { label: `${name}, /s`, digits: 0, goal: rate },
      { label: `${name}, p99 ms`, digits: 2, goal: tail },
    ],
    run: async (target, seconds) => {
      const loop = await closedLoop(target, { connections, seconds });
      return [loop.rate, loop.p99];
    },
  };
}

function fresh(
  name: string,
  connections: number,
  least: number,
  short?: 'weft' | 'all',
): Measurement {
  return {
    path: 'nodes',
    peers: OF_NEW_CONNECTIONS,
    ...(short === undefined ? {} : { short }),
    figures: [
      { label: `new connections, ${name}, /s`, digits: 0, goal: { against: 'http2', least } },
    ],
    cost: {
      figure: { label: `new connections, ${name}, processor µs`, digits: 0 },
      scale: 1e6,
      work: ([rate = Number.NaN], seconds) => rate * seconds,
    },
    run: async (target, seconds) => [
      (await closedLoop(target, { connections, seconds, newConnections: true })).rate,
    ],
  };
}

/** All request rows. */
export const requests: readonly Measurement[] = [
  alone,
  beside,
  many(16, { against: 'haproxy', least: 0.95 }, { against: 'haproxy', most: 0.83 }, 'weft'),
  // HAProxy's own tail is long here, so the tail is compared with the bare pair.
  many(64, { against: 'haproxy', least: 1.09 }, { against: 'http2', most: 1 }),
  fresh('16 parallel', 16, 1.25, 'all'),
  fresh('serial', 1, 1.5),
];
