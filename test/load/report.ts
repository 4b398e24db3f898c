/** The load's table and its picture. */
import type { LoadOptions, Point } from './point.ts';

const MIB = 1_048_576;

interface Column {
  readonly label: string;
  readonly of: (point: Point) => string;
}

const ms = (value: number): string => value.toFixed(1);

const ROWS: readonly Column[] = [
  { label: 'threads × proxies', of: ({ threads, workers }) => `${threads} × ${workers / threads}` },
  { label: 'up after, s', of: ({ upSeconds }) => upSeconds.toFixed(0) },
  { label: 'throughput, Gbit/s', of: ({ gbits }) => gbits.toFixed(2) },
  { label: 'new connections/s', of: ({ newPerSecond }) => newPerSecond.toFixed(0) },
  { label: 'answer p50, ms', of: ({ p50 }) => ms(p50) },
  { label: 'answer p90, ms', of: ({ p90 }) => ms(p90) },
  { label: 'answer p99, ms', of: ({ p99 }) => ms(p99) },
  { label: 'answer p99.9, ms', of: ({ p999 }) => ms(p999) },
  { label: 'connections held', of: ({ held }) => String(held) },
  { label: 'held ones lost', of: ({ lost }) => String(lost) },
  { label: 'refused or unanswered', of: ({ refused }) => String(refused) },
  { label: 'cores of the proxies, new connections', of: ({ cpuRate }) => cpuRate.toFixed(2) },
  { label: 'cores of the proxies, bytes', of: ({ cpuBulk }) => cpuBulk.toFixed(2) },
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

/** The table: one column for each number of threads. */
export function table(options: LoadOptions, points: readonly Point[]): string {
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

interface Line {
  readonly name: string;
  readonly colour: string;
  readonly of: (point: Point) => number;
}

interface Panel {
  readonly title: string;
  readonly lines: readonly Line[];
}

const BLUE = '#2563eb';
const RED = '#dc2626';
const GREY = '#6b7280';

const PANELS: readonly Panel[] = [
  {
    title: 'Throughput, Gbit/s',
    lines: [{ name: 'received', colour: BLUE, of: ({ gbits }) => gbits }],
  },
  {
    title: 'Latency of a new connection, ms',
    lines: [
      { name: 'p50', colour: BLUE, of: ({ p50 }) => p50 },
      { name: 'p90', colour: GREY, of: ({ p90 }) => p90 },
      { name: 'p99', colour: RED, of: ({ p99 }) => p99 },
    ],
  },
  {
    title: 'CPU, cores',
    lines: [
      { name: 'proxies, new connections', colour: BLUE, of: ({ cpuRate }) => cpuRate },
      { name: 'proxies, bytes', colour: RED, of: ({ cpuBulk }) => cpuBulk },
      { name: 'load', colour: GREY, of: ({ cpuLoad }) => cpuLoad },
    ],
  },
  {
    title: 'Memory of all proxies, MiB',
    lines: [
      { name: 'idle', colour: GREY, of: ({ idleBytes }) => idleBytes / MIB },
      { name: 'connections held', colour: BLUE, of: ({ heldBytes }) => heldBytes / MIB },
    ],
  },
];

const PANEL_WIDTH = 360;
const PANEL_HEIGHT = 240;
const MARGIN = { left: 52, right: 16, top: 34, bottom: 52 } as const;

/** The picture: four panels over the number of listener threads of a node. */
export function picture(points: readonly Point[]): string {
  const panels = PANELS.map((panel, index) => {
    const x = (index % 2) * PANEL_WIDTH;
    const y = Math.floor(index / 2) * PANEL_HEIGHT;
    return `<g transform="translate(${x} ${y})">${drawPanel(panel, points)}</g>`;
  });
  const [width, height] = [2 * PANEL_WIDTH, 2 * PANEL_HEIGHT];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="sans-serif" font-size="11">`,
    `<rect width="${width}" height="${height}" fill="white"/>`,
    ...panels,
    '</svg>',
    '',
  ].join('\n');
}

function drawPanel({ title, lines }: Panel, points: readonly Point[]): string {
  const inner = {
    width: PANEL_WIDTH - MARGIN.left - MARGIN.right,
    height: PANEL_HEIGHT - MARGIN.top - MARGIN.bottom,
  };
  const workers = points.map((point) => point.workers);
  const most = niceCeiling(Math.max(...lines.flatMap(({ of }) => points.map(of)), 0.001));
  const x = (value: number): number =>
    MARGIN.left + (inner.width * value) / Math.max(...workers, 1);
  const y = (value: number): number => MARGIN.top + inner.height * (1 - value / most);
  const grid = [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const at = y(share * most).toFixed(1);
    const label = String(Number((share * most).toPrecision(3)));
    return `<line x1="${MARGIN.left}" x2="${PANEL_WIDTH - MARGIN.right}" y1="${at}" y2="${at}" stroke="#e5e7eb"/><text x="${MARGIN.left - 6}" y="${at}" text-anchor="end" dominant-baseline="middle">${label}</text>`;
  });
  const ticks = workers.map(
    (value) =>
      `<text x="${x(value).toFixed(1)}" y="${PANEL_HEIGHT - MARGIN.bottom + 16}" text-anchor="middle">${value}</text>`,
  );
  const drawn = lines.map(({ name, colour, of }, index) => {
    const places = points.map(
      (point) => `${x(point.workers).toFixed(1)},${y(of(point)).toFixed(1)}`,
    );
    const dots = places.map((place) => {
      const [cx, cy] = place.split(',');
      return `<circle cx="${cx}" cy="${cy}" r="3" fill="${colour}"/>`;
    });
    const legend = `<text x="${MARGIN.left + index * 105}" y="${PANEL_HEIGHT - 8}" fill="${colour}">${name}</text>`;
    return `<polyline points="${places.join(' ')}" fill="none" stroke="${colour}" stroke-width="2"/>${dots.join('')}${legend}`;
  });
  const head = `<text x="${MARGIN.left}" y="18" font-size="13">${title}</text>`;
  const axis = `<text x="${PANEL_WIDTH - MARGIN.right}" y="${PANEL_HEIGHT - MARGIN.bottom + 30}" text-anchor="end" fill="${GREY}">listener threads of a node</text>`;
  return [head, ...grid, ...ticks, ...drawn, axis].join('');
}

/** The next of 1, 2, 2.5, 5 × a power of ten. */
function niceCeiling(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= value) ?? 10;
  return step * power;
}
