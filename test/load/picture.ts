/** Draws the load's picture: one panel for each figure, over the listener threads of a node. */
import type { LoadOptions, Point } from './point.ts';

const MIB = 1_048_576;
const MS = 1_000;

/** Facts about the whole run that the picture shows. */
export interface Run {
  readonly options: Omit<LoadOptions, 'proxies'>;
  /** The number of cores that everything shared. */
  readonly cores: number;
  /** ISO date. */
  readonly day: string;
}

interface Line {
  readonly name: string;
  readonly colour: string;
  readonly of: (point: Point) => number;
}

interface Panel {
  readonly title: string;
  readonly lines: readonly Line[];
  /** The reference line of a panel. */
  readonly mark?: (run: Run) => { readonly name: string; readonly value: number };
  /** True for decades instead of equal steps. */
  readonly logarithmic?: boolean;
}

const BLUE = '#1d4ed8';
const ORANGE = '#c2410c';
const GREEN = '#047857';
const GREY = '#6b7280';
const INK = '#111827';

const PANELS: readonly Panel[] = [
  {
    title: 'Bytes carried, Gbit/s',
    lines: [{ name: 'received', colour: BLUE, of: ({ gbits }) => gbits }],
  },
  {
    title: 'New connections a second',
    lines: [{ name: 'made', colour: BLUE, of: ({ newPerSecond }) => newPerSecond }],
    mark: ({ options }) => ({ name: 'asked for', value: options.rate }),
  },
  {
    title: 'Time to the answer of a new connection, ms',
    logarithmic: true,
    lines: [
      { name: 'p50', colour: GREEN, of: ({ p50 }) => p50 },
      { name: 'p90', colour: BLUE, of: ({ p90 }) => p90 },
      { name: 'p99', colour: ORANGE, of: ({ p99 }) => p99 },
      { name: 'p99.9', colour: GREY, of: ({ p999 }) => p999 },
    ],
  },
  {
    title: 'Processors in use, cores',
    lines: [
      { name: 'proxies: new connections', colour: BLUE, of: ({ cpuRate }) => cpuRate },
      { name: 'proxies: bytes', colour: ORANGE, of: ({ cpuBulk }) => cpuBulk },
      { name: 'load: new connections', colour: GREY, of: ({ cpuLoad }) => cpuLoad },
    ],
    mark: ({ cores }) => ({ name: 'machine', value: cores }),
  },
  {
    title: 'Processor time of the proxies, ms a connection',
    lines: [{ name: 'both sides', colour: BLUE, of: costOfConnection }],
  },
  {
    title: 'Memory of all proxies, MiB',
    lines: [
      { name: 'connections held', colour: BLUE, of: ({ heldBytes }) => heldBytes / MIB },
      { name: 'idle', colour: GREY, of: ({ idleBytes }) => idleBytes / MIB },
    ],
  },
];

const COLUMNS = 2;
const PANEL = { width: 430, height: 280 } as const;
const MARGIN = { left: 62, right: 24, top: 68, bottom: 46 } as const;
const HEAD = 62;
/** The approximate width of a letter of the legend. */
const LETTER = 6.6;
const MOST_STEPS = 5;

/** Returns the proxies' processor time for each connection made at the rate, in milliseconds. */
export function costOfConnection({ cpuRate, newPerSecond }: Point): number {
  return newPerSecond > 0 ? (cpuRate * MS) / newPerSecond : 0;
}

/** Draws the picture as SVG. Lines join points with the same number of proxies, or all points when only the proxies vary. */
export function picture(points: readonly Point[], run: Run): string {
  const panels = PANELS.map((panel, index) => {
    const x = (index % COLUMNS) * PANEL.width;
    const y = HEAD + Math.floor(index / COLUMNS) * PANEL.height;
    return `<g transform="translate(${x} ${y})">${drawPanel(panel, points, run)}</g>`;
  });
  const width = COLUMNS * PANEL.width;
  const height = HEAD + Math.ceil(PANELS.length / COLUMNS) * PANEL.height;
  const { nodes, pods, connections, rate, durationSeconds } = run.options;
  const said = [
    `${nodes} nodes with ${pods} pods each, ${connections} connections held on every node, ${rate} new ones a second for ${durationSeconds} s;`,
    `proxies, load, Redis and control plane share ${run.cores} cores; ${run.day}`,
  ];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11" fill="${INK}">`,
    `<rect width="${width}" height="${height}" fill="white"/>`,
    text({ x: 16, y: 24, size: 15, weight: 'bold' }, 'Weft under load, by listener threads'),
    ...said.map((line, index) => text({ x: 16, y: 42 + 14 * index, colour: GREY }, line)),
    ...panels,
    '</svg>',
    '',
  ].join('\n');
}

interface Scale {
  readonly ticks: readonly number[];
  /** Maps a value to 0 (bottom) to 1 (top). */
  readonly share: (value: number) => number;
}

function drawPanel(panel: Panel, points: readonly Point[], run: Run): string {
  const mark = panel.mark?.(run) ?? null;
  const values = panel.lines.flatMap(({ of }) => points.map(of));
  const all = mark === null ? values : [...values, mark.value];
  const scale = panel.logarithmic === true ? decades(all) : steps(all);
  const inner = {
    width: PANEL.width - MARGIN.left - MARGIN.right,
    height: PANEL.height - MARGIN.top - MARGIN.bottom,
  };
  const x = (index: number): number => MARGIN.left + (inner.width * (index + 0.5)) / points.length;
  const y = (value: number): number => MARGIN.top + inner.height * (1 - scale.share(value));
  const right = PANEL.width - MARGIN.right;
  const grid = scale.ticks.map(
    (tick) =>
      line([MARGIN.left, y(tick), right, y(tick)], '#e5e7eb') +
      text({ x: MARGIN.left - 7, y: y(tick) + 4, anchor: 'end' }, shown(tick)),
  );
  const foot = PANEL.height - MARGIN.bottom;
  const axes = [
    line([MARGIN.left, MARGIN.top, MARGIN.left, foot], GREY),
    line([MARGIN.left, foot, right, foot], GREY),
    ...points.map((point, index) =>
      text({ x: x(index), y: foot + 16, anchor: 'middle' }, place(point, points)),
    ),
    text(
      { x: (MARGIN.left + right) / 2, y: foot + 33, anchor: 'middle', colour: GREY },
      axisName(points),
    ),
  ];
  const marked =
    mark === null ? [] : [line([MARGIN.left, y(mark.value), right, y(mark.value)], INK, '5 4')];
  const curves = panel.lines.map((curve) => drawCurve(curve, points, x, y));
  const names = [
    ...panel.lines.map(({ name, colour }) => ({ name, colour, dashed: false })),
    ...(mark === null ? [] : [{ name: mark.name, colour: INK, dashed: true }]),
  ];
  const title = text({ x: MARGIN.left, y: 20, size: 13, weight: 'bold' }, panel.title);
  return [title, legend(names), ...grid, ...axes, ...marked, ...curves].join('');
}

function drawCurve(
  { colour, of }: Line,
  points: readonly Point[],
  x: (index: number) => number,
  y: (value: number) => number,
): string {
  const oneEach = new Set(points.map(({ threads }) => threads)).size === 1;
  const places = points.map((point, index) => ({
    // With one number of threads, one curve over the proxies.
    part: oneEach ? 0 : point.proxies,
    at: `${x(index).toFixed(1)},${y(of(point)).toFixed(1)}`,
  }));
  const parts = [...Map.groupBy(places, ({ part }) => part).values()];
  const joined = parts.map(
    (part) =>
      `<polyline points="${part.map(({ at }) => at).join(' ')}" fill="none" stroke="${colour}" stroke-width="2"/>`,
  );
  const dots = places.map(({ at }) => {
    const [cx, cy] = at.split(',');
    return `<circle cx="${cx}" cy="${cy}" r="3.5" fill="${colour}"/>`;
  });
  return [...joined, ...dots].join('');
}

function legend(
  names: readonly { readonly name: string; readonly colour: string; readonly dashed: boolean }[],
): string {
  let x: number = MARGIN.left;
  let y = 36;
  return names
    .map(({ name, colour, dashed }) => {
      const width = 23 + name.length * LETTER;
      if (x + width > PANEL.width) {
        x = MARGIN.left;
        y += 16;
      }
      const at = x;
      x += width + 14;
      const stroke = line([at, y, at + 18, y], colour, dashed ? '5 4' : null, 2);
      return stroke + text({ x: at + 23, y: y + 4 }, name);
    })
    .join('');
}

/** Labels a point with its number of threads, or with both numbers when proxies vary. */
function place({ threads, proxies }: Point, points: readonly Point[]): string {
  return severalProxies(points) ? `${threads} × ${proxies}` : String(threads);
}

function axisName(points: readonly Point[]): string {
  if (severalProxies(points)) return 'listener threads × proxies of a node';
  const proxies = points[0]?.proxies ?? 1;
  return proxies === 1
    ? 'listener threads of a node'
    : `listener threads in each of ${proxies} proxies of a node`;
}

function severalProxies(points: readonly Point[]): boolean {
  return new Set(points.map(({ proxies }) => proxies)).size > 1;
}

/** Makes a scale from 0 in round steps to beyond the largest value. */
function steps(values: readonly number[]): Scale {
  const greatest = Math.max(...values.filter(Number.isFinite), 1e-3);
  const power = 10 ** Math.floor(Math.log10(greatest / MOST_STEPS));
  const step =
    ([1, 2, 2.5, 5].find((factor) => factor * power * MOST_STEPS >= greatest) ?? 10) * power;
  const count = Math.ceil(greatest / step - 1e-9);
  const ticks = Array.from({ length: count + 1 }, (_, index) => index * step);
  return { ticks, share: (value) => finite(value) / (count * step) };
}

/** Makes a scale of whole decades around the values. */
function decades(values: readonly number[]): Scale {
  const positive = values.filter((value) => Number.isFinite(value) && value > 0);
  const low = Math.floor(Math.log10(Math.min(...positive, 1e9)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive, 1e-9))));
  const [from, to] = positive.length === 0 ? [0, 1] : [low, high];
  const ticks = Array.from({ length: to - from + 1 }, (_, index) => 10 ** (from + index));
  return {
    ticks,
    share: (value) => (Math.log10(Math.max(finite(value), 10 ** from)) - from) / (to - from),
  };
}

function finite(value: number): number {
  return Number.isFinite(value) ? value : 0;
}

function shown(value: number): string {
  return String(Number(value.toPrecision(3)));
}

interface TextStyle {
  readonly x: number;
  readonly y: number;
  readonly anchor?: 'middle' | 'end';
  readonly colour?: string;
  readonly size?: number;
  readonly weight?: string;
}

function text({ x, y, anchor, colour, size, weight }: TextStyle, said: string): string {
  const style = [
    anchor === undefined ? '' : ` text-anchor="${anchor}"`,
    colour === undefined ? '' : ` fill="${colour}"`,
    size === undefined ? '' : ` font-size="${size}"`,
    weight === undefined ? '' : ` font-weight="${weight}"`,
  ];
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}"${style.join('')}>${said}</text>`;
}

function line(
  [x1, y1, x2, y2]: readonly [number, number, number, number],
  colour: string,
  dashes: string | null = null,
  width = 1,
): string {
  const dashed = dashes === null ? '' : ` stroke-dasharray="${dashes}"`;
  const ends = `x1="${x1.toFixed(1)}" y1="${y1.toFixed(1)}" x2="${x2.toFixed(1)}" y2="${y2.toFixed(1)}"`;
  return `<line ${ends} stroke="${colour}" stroke-width="${width}"${dashed}/>`;
}
