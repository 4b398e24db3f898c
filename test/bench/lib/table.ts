/** The printed form of a benchmark: each figure per path, and as ratio to direct and to the HAProxy pair. */
import type { Latency } from './loads.ts';

/** What was measured on one path; null where the short form leaves it out. Gbit/s and milliseconds. */
export interface Figures {
  readonly name: string;
  readonly up1: number;
  readonly down1: number;
  readonly up8: number | null;
  readonly down8: number | null;
  readonly fixed: Latency;
  readonly loop1: Latency | null;
  readonly loop16: Latency;
  readonly freshPerSecond: number;
}

/** Resident memory in bytes. */
export interface Memory {
  readonly weftPerConnection: number;
  readonly haproxyPerConnection: number;
  readonly weftPerThousandWorkloads: number;
  readonly weftResident: readonly number[];
}

interface Row {
  readonly label: string;
  readonly digits: number;
  pick(figures: Figures): number | null;
}

const latencyRows = (label: string, pick: (figures: Figures) => Latency | null): Row[] =>
  (['p50', 'p90', 'p99'] as const).map((name) => ({
    label: `${label}, ${name} ms`,
    digits: 3,
    pick: (figures) => pick(figures)?.[name] ?? null,
  }));

const rows: readonly Row[] = [
  { label: '1 connection up, Gbit/s', digits: 2, pick: (figures) => figures.up1 },
  { label: '1 connection down, Gbit/s', digits: 2, pick: (figures) => figures.down1 },
  { label: '8 connections up, Gbit/s', digits: 2, pick: (figures) => figures.up8 },
  { label: '8 connections down, Gbit/s', digits: 2, pick: (figures) => figures.down8 },
  ...latencyRows('1,000 requests/s on 8', (figures) => figures.fixed),
  ...latencyRows('closed loop of 1', (figures) => figures.loop1),
  ...latencyRows('closed loop of 16', (figures) => figures.loop16),
  { label: 'closed loop of 16, requests/s', digits: 0, pick: (figures) => figures.loop16.rate },
  { label: 'new connections/s, 16 at once', digits: 0, pick: (figures) => figures.freshPerSecond },
];

const kib = (bytes: number): string => `${(bytes / 1024).toFixed(1)} KiB`;
const mib = (bytes: number): string => `${(bytes / 1024 ** 2).toFixed(1)} MiB`;

/** The whole report as text. */
export function render(
  paths: readonly Figures[],
  memory: Memory,
  run: { seconds: number; idleConnections: number; knownWorkloads: number },
): string {
  const find = (name: string): Figures | undefined => paths.find((path) => path.name === name);
  const [direct, weft, haproxy] = [find('direct'), find('weft'), find('haproxy mtls')];
  const header = ['', ...paths.map((path) => path.name), 'weft/direct', 'weft/haproxy'];
  const body = rows.map((row) => {
    const value = (path: Figures | undefined): number | null =>
      path === undefined ? null : row.pick(path);
    const ratio = (other: Figures | undefined): string => {
      const [ours, theirs] = [value(weft), value(other)];
      return ours === null || theirs === null ? '-' : (ours / theirs).toFixed(2);
    };
    return [
      row.label,
      ...paths.map((path) => value(path)?.toFixed(row.digits) ?? '-'),
      ratio(direct),
      ratio(haproxy),
    ];
  });
  const widths = header.map((_, column) =>
    Math.max(...[header, ...body].map((line) => line[column]?.length ?? 0)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  ')
      .trimEnd();
  const ceiling =
    weft === undefined || direct === undefined
      ? ''
      : `The generators reach ${direct.up1.toFixed(1)} Gbit/s and ${direct.loop16.rate.toFixed(0)} requests/s on the direct path, ` +
        `${(direct.up1 / weft.up1).toFixed(1)} and ${(direct.loop16.rate / weft.loop16.rate).toFixed(1)} times what they get through weft: they are not the bottleneck.`;
  return [
    `${run.seconds} s per figure; every program shares this machine's cores, so read ratios, not absolutes.`,
    '',
    ...[header, ...body].map(line),
    '',
    `memory per idle connection, both sides together (${run.idleConnections} open): weft ${kib(memory.weftPerConnection)}, haproxy ${kib(memory.haproxyPerConnection)}`,
    `memory of one node-proxy per 1,000 known workloads (${run.knownWorkloads} added): ${mib(memory.weftPerThousandWorkloads)}`,
    `node-proxy resident at the end: ${memory.weftResident.map(mib).join(', ')}`,
    ceiling,
    '',
  ].join('\n');
}
