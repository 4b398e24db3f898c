import test from 'ava';
import { costOfConnection, picture } from '../../load/picture.ts';
import type { Point } from '../../load/point.ts';
import { table } from '../../load/report.ts';

const options = { nodes: 2, pods: 4, connections: 100, rate: 300, durationSeconds: 10 };
const run = { options, cores: 2, day: '2026-01-02' };

function point(threads: number, proxies: number, changed: Partial<Point> = {}): Point {
  return {
    threads,
    proxies,
    workers: threads * proxies,
    upSeconds: 5,
    gbits: threads,
    newPerSecond: 300,
    p50: 1,
    p90: 5,
    p99: 40,
    p999: 900,
    held: 100,
    lost: 0,
    refused: 0,
    reasons: [],
    cpuRate: 0.6,
    cpuBulk: 1.5,
    cpuLoad: 0.3,
    idleBytes: 300 * 1_048_576,
    heldBytes: 320 * 1_048_576,
    ...changed,
  };
}

/** Counts the lines that join `dots` points. */
function curves(svg: string, dots: number): number {
  return [...svg.matchAll(/<polyline points="([^"]*)"/g)].filter(
    ([, places]) => places?.split(' ').length === dots,
  ).length;
}

test('a curve joins the points of one number of proxies', (t) => {
  const threads = picture([point(1, 1), point(2, 1), point(4, 1)], run);
  t.is(curves(threads, 3), 12);
  t.true(threads.includes('>listener threads of a node<'));
  const both = picture([point(1, 1), point(2, 1), point(1, 2), point(2, 2)], run);
  t.is(curves(both, 2), 24);
  t.true(both.includes('>listener threads × proxies of a node<'));
  t.true(both.includes('>1 × 2<'));
  t.is(curves(picture([point(2, 1), point(2, 2), point(2, 3)], run), 3), 12);
  t.true(picture([point(1, 3)], run).includes('>listener threads in each of 3 proxies of a node<'));
});

test('every number of the picture lies within it, whatever was measured', (t) => {
  const odd = [
    point(1, 1, { p50: Number.NaN, p90: Number.NaN, p99: Number.NaN, p999: Number.NaN }),
    point(2, 1, { gbits: 0, newPerSecond: 0, cpuRate: 0, cpuBulk: 0, cpuLoad: 0 }),
    point(4, 1, { gbits: 123.4, newPerSecond: 299.7, p50: 0, p999: 60_000, cpuBulk: 63 }),
  ];
  for (const points of [odd, odd.slice(0, 1), odd.slice(1, 2), odd.slice(2)]) {
    const svg = picture(points, run);
    t.false(/NaN|Infinity|undefined/.test(svg), svg);
    for (const [, value] of svg.matchAll(/ (?:y1?|y2|cy)="([^"]*)"/g)) {
      t.true(Number(value) >= 0 && Number(value) <= 1_000, value);
    }
  }
});

test('the table has a column for each point', (t) => {
  const text = table(options, [point(1, 2), point(4, 2)]);
  t.regex(text, /^2 nodes with 4 pods each; 100 connections on every node/);
  t.regex(text, /threads × proxies +1 × 2 +4 × 2\n/);
  t.regex(text, /ms of the proxies a new connection +2\.00 +2\.00\n/);
  t.is(costOfConnection(point(1, 1, { newPerSecond: 0 })), 0);
});
