/** Prints a run: every figure of every peer, the goal, and whether it is met. */
import { describeGoal, judge } from './goal.ts';
import type { FigureResult } from './measurement.ts';
import { PEERS } from './rig.ts';
import type { PeerName } from './rig.ts';

/** A figure with an absolute limit instead of a peer. */
export interface LimitResult {
  readonly label: string;
  readonly value: number;
  readonly digits: number;
  /** Null when the figure is only shown for information. */
  readonly most: number | null;
}

/** The parameters of the run. */
export interface RunInfo {
  readonly seconds: number;
  readonly rounds: number;
}

/** Formats the table as text. */
export function render(
  results: readonly FigureResult[],
  limits: readonly LimitResult[],
  run: RunInfo,
): string {
  const peers = PEERS.filter((peer) => results.some(({ values }) => values.has(peer)));
  const lines = [
    `Median of ${run.rounds} rounds of ${run.seconds} s; every program shares this machine's cores, so read ratios, not absolutes.`,
    '',
  ];
  if (results.length > 0) {
    const header = ['', ...peers, 'goal', 'ratio', ''];
    lines.push(...columns([header, ...results.map((result) => figureLine(result, peers))]), '');
  }
  if (limits.length > 0) lines.push(...columns(limits.map(limitLine)), '');
  return lines.join('\n');
}

function figureLine({ figure, values }: FigureResult, peers: readonly PeerName[]): string[] {
  const cells = peers.map((peer) => values.get(peer)?.toFixed(figure.digits) ?? '-');
  const { goal } = figure;
  if (goal === undefined) return [figure.label, ...cells, '', '', ''];
  const verdict = judge(goal, values);
  const outcome = verdict === null ? ['-', ''] : [verdict.ratio.toFixed(2), word(verdict.met)];
  return [figure.label, ...cells, describeGoal(goal), ...outcome];
}

function limitLine({ label, value, digits, most }: LimitResult): string[] {
  const goal = most === null ? '' : `≤ ${most}`;
  return [label, value.toFixed(digits), goal, most === null ? '' : word(value <= most)];
}

function word(met: boolean): string {
  return met ? 'met' : 'not met';
}

function columns(rows: readonly (readonly string[])[]): string[] {
  const width = (column: number): number =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0));
  return rows.map((row) =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(width(column)) : cell.padStart(width(column)),
      )
      .join('  ')
      .trimEnd(),
  );
}
