/** Selects lines by a general level and by levels of single targets (docs/spec/observability.md §3, §4). Pure. */

/** Levels of the filter; the first lets the fewest lines through. */
export const LOG_LEVELS = ['off', 'error', 'warn', 'info', 'debug', 'trace'] as const;

/** One of {@link LOG_LEVELS}. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** A parsed filter. Plain data. */
export interface LogFilter {
  /** The level of targets that are not in `targets`. */
  readonly level: LogLevel;
  /** The most specific target comes first; each is named once. */
  readonly targets: readonly (readonly [target: string, level: LogLevel])[];
}

/** Targets a filter may name; a process has some dozen. */
export const MAX_LOG_TARGETS = 64;

/** Errors of other targets stay visible when a filter names one target, because someone must act on an error. */
const LEVEL_OF_THE_REST: LogLevel = 'error';

/** Upstream's name of its own code; here it stands for all targets except {@link OWN_TARGETS}. */
const PROGRAM = 'ztunnel';
const PROGRAM_PREFIX = `${PROGRAM}::`;
/** Targets that upstream does not prefix with its program's name. */
const OWN_TARGETS: ReadonlySet<string> = new Set(['access', 'dns']);

const TARGET = /^[A-Za-z0-9_][A-Za-z0-9_:.-]{0,127}$/;

/** Parses `info` or `info,access=debug`. A later element overrides an earlier one. Throws an Error that names the fault. */
export function parseLogFilter(text: string): LogFilter {
  return extendLogFilter({ level: LEVEL_OF_THE_REST, targets: [] }, text);
}

/** Returns the filter with the elements of `text` added. Throws an Error that names the fault and its place. */
export function extendLogFilter(filter: LogFilter, text: string): LogFilter {
  let { level } = filter;
  const targets = new Map(filter.targets);
  for (const element of text.split(',').map((part) => part.trim())) {
    const at = element.lastIndexOf('=');
    const found = levelOf(element.slice(at + 1));
    const target = at === -1 ? null : element.slice(0, at);
    if (found === null || (target !== null && !TARGET.test(target))) {
      throw new Error(
        `${JSON.stringify(element.slice(0, 200))} is neither a level (${LOG_LEVELS.join(', ')}) nor target=level`,
      );
    }
    if (target === null) level = found;
    else targets.set(target, found);
  }
  if (targets.size > MAX_LOG_TARGETS) {
    throw new Error(`a filter names at most ${MAX_LOG_TARGETS} targets, got ${targets.size}`);
  }
  const sorted = [...targets].sort(
    ([a], [b]) => ownName(b).length - ownName(a).length || (a < b ? -1 : 1),
  );
  return { level, targets: sorted };
}

/** Writes a filter as {@link parseLogFilter} reads it. */
export function formatLogFilter(filter: LogFilter): string {
  return [...filter.targets.map(([target, level]) => `${target}=${level}`), filter.level].join(',');
}

/** Returns the level of a target. */
export function levelFor(filter: LogFilter, target: string): LogLevel {
  for (const [named, level] of filter.targets) if (covers(named, target)) return level;
  return filter.level;
}

/** Returns the most verbose level that any target has. */
export function mostVerbose(filter: LogFilter): LogLevel {
  return filter.targets.reduce<LogLevel>(
    (most, [, level]) => (LOG_LEVELS.indexOf(level) > LOG_LEVELS.indexOf(most) ? level : most),
    filter.level,
  );
}

function covers(named: string, target: string): boolean {
  if (named === PROGRAM) return !OWN_TARGETS.has(target);
  return target.startsWith(ownName(named));
}

function ownName(named: string): string {
  return named.startsWith(PROGRAM_PREFIX) ? named.slice(PROGRAM_PREFIX.length) : named;
}

function levelOf(text: string): LogLevel | null {
  const lower = text.trim().toLowerCase();
  // pino's word for it; tests and libraries use it.
  if (lower === 'silent') return 'off';
  return LOG_LEVELS.find((level) => level === lower) ?? null;
}
