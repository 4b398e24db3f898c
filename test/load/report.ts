/** Formats the load's table. */
import { costOfConnection } from './picture.ts';
import type { LoadOptions, Point } from './point.ts';

const MIB = 1_048_576;

interface Column {
  readonly label: string;
  readonly of: (point: Point) => string;
}

const ms = (value: number): string => value.toFixed(1);

const ROWS: readonly Column[] = [
  { label: 'threads × proxies', of: ({ threads, proxies }) => `${threads} × ${proxies}` },
  { label: 'up after, s', of: ({ upSeconds }) => upSeconds.toFixed(0) },
  { label: 'throughput, Gbit/s', of: ({ gbits }) => gbits.toFixed(2) },
  { label: 'new connections/s', of: ({ newPerSecond }) => newPerSecond.toFixed(0) },
  { label: 'answer p50, ms', of: ({ p50 }) => ms(p50) },
  { label: 'answer p90, ms', of: ({ p90 }) => ms(p90) },
  { label: 'answer p99, ms', of: ({ p99 }) => ms(p99) },
  { label: 'answer p99.9, ms', of: ({ p999 }) => ms(p999) },
  { label: 'connections held', of: ({ held }) => String(held) },
  { label: 'carried, then lost', of: ({ lost }) => String(lost) },
  { label: 'refused or unanswered', of: ({ refused }) => String(refused) },
  { label: 'cores of the proxies, new connections', of: ({ cpuRate }) => cpuRate.toFixed(2) },
  { label: 'cores of the proxies, bytes', of: ({ cpuBulk }) => cpuBulk.toFixed(2) },
  {
    label: 'ms of the proxies a new connection',
    of: (point) => costOfConnection(point).toFixed(2),
  },
  { label: 'cores of the load, new connections', of: ({ cpuLoad }) => cpuLoad.toFixed(2) },
  {
    label: 'memory of the proxies, idle, MiB',
    of: ({ idleBytes }) => (idleBytes / MIB).toFixed(0),
  },
  {
    label: 'memory of the proxies, held, MiB',
    of: ({ heldBytes }) => (heldBytes / MIB).toFixed(0),
  },
];

/** Formats the table with one column for each number of threads and proxies. */
export function table(options: Omit<LoadOptions, 'proxies'>, points: readonly Point[]): string {
  const { nodes, pods, connections, rate, durationSeconds } = options;
  const rows = ROWS.map(({ label, of }) => [label, ...points.map(of)]);
  const width = (column: number): number =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0));
  return [
    `${nodes} nodes with ${pods} pods each; ${connections} connections on every node; ${rate} new connections a second for ${durationSeconds} s`,
    '',
    ...rows.map((row) =>
      row
        .map((cell, column) =>
          column === 0 ? cell.padEnd(width(column)) : cell.padStart(width(column)),
        )
        .join('  '),
    ),
    '',
  ].join('\n');
}
