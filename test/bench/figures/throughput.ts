/** Measures bytes per second, as the receiver counts them. */
import { throughput } from '../lib/loads.ts';
import type { Measurement } from '../lib/measurement.ts';
import type { Path } from '../lib/rig.ts';
import type { Goal } from '../lib/goal.ts';

type Direction = 'up' | 'down';

function bytes(
  name: string,
  path: Path,
  goal: Goal,
  load: { readonly connections: number; readonly direction: Direction },
  short?: 'weft' | 'all',
): Measurement {
  const { connections, direction } = load;
  const count = connections === 1 ? '1 connection' : `${connections} connections`;
  return {
    path,
    ...(short === undefined ? {} : { short }),
    figures: [{ label: `${name}, ${count} ${direction}, Gbit/s`, digits: 2, goal }],
    cost: {
      figure: { label: `${name}, ${count} ${direction}, processor s/GB`, digits: 2 },
      scale: 1,
      work: ([rate = Number.NaN], seconds) => (rate * seconds) / 8,
    },
    run: async (target, seconds) => [
      await throughput(target, { connections, seconds, down: direction === 'down' }),
    ],
  };
}

const one = { against: 'haproxy', least: 0.8 } as const;
const many = { against: 'haproxy', least: 0.7 } as const;
const kernel = { against: 'splice', least: 0.95 } as const;

/** All throughput rows. */
export const throughputs: readonly Measurement[] = [
  bytes('node to node', 'nodes', one, { connections: 1, direction: 'up' }, 'all'),
  bytes('node to node', 'nodes', one, { connections: 1, direction: 'down' }),
  bytes('node to node', 'nodes', many, { connections: 8, direction: 'up' }),
  bytes('node to node', 'nodes', many, { connections: 8, direction: 'down' }),
  bytes('same node', 'same-node', kernel, { connections: 1, direction: 'up' }, 'all'),
  bytes('same node', 'same-node', kernel, { connections: 8, direction: 'up' }),
  bytes('passthrough out', 'leaving', kernel, { connections: 1, direction: 'up' }, 'weft'),
  bytes('passthrough out', 'leaving', kernel, { connections: 1, direction: 'down' }),
  bytes('passthrough out', 'leaving', kernel, { connections: 8, direction: 'up' }),
  bytes('passthrough in', 'entering', kernel, { connections: 1, direction: 'up' }),
  bytes('passthrough in', 'entering', kernel, { connections: 1, direction: 'down' }),
];
