/** Which lines are written: a level for everything, and others for single targets (docs/spec/observability.md §3, §4). Pure. */

/** Levels of the filter, least lines first. */
export const LOG_LEVELS = ['off', 'error', 'warn', 'info', 'debug', 'trace'] as const;

/** One of {@link LOG_LEVELS}. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** A parsed filter. Plain data. */
export interface LogFilter {
  /** For targets that none of `targets` names. */
  readonly level: LogLevel;
  /** The most specific first; a target is named once. */
  readonly targets: readonly (readonly [target: string, level: LogLevel])[];
}

/** Targets a filter may name; a process has some dozen. */
export const MAX_LOG_TARGETS = 64;

/** Someone must act on an error, so naming one target does not silence those of all others. */
const LEVEL_OF_THE_REST: LogLevel = 'error';

/** What upstream calls its own code; here it stands for everything but {@link OWN_TARGETS}. */
const PROGRAM = 'ztunnel';
const PROGRAM_PREFIX = `${PROGRAM}::`;
/** Targets upstream keeps outside its program's name. */
const OWN_TARGETS: ReadonlySet<string> = new Set(['access', 'dns']);

const TARGET = /^[A-Za-z0-9_][A-Za-z0-9_:.-]{0,127}$/;

/** `info`, `info,access=debug`: a later element goes before an earlier one. Throws an Error that says what is wrong. */
export function parseLogFilter(text: string): LogFilter {
  return extendLogFilter({ level: LEVEL_OF_THE_REST, targets: [] }, text);
}

/** The filter with the elements of `text` added. Throws an Error that says what is wrong, and where. */
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

/** The text {@link parseLogFilter} reads. */
export function formatLogFilter(filter: LogFilter): string {
  return [...filter.targets.map(([target, level]) => `${target}=${level}`), filter.level].join(',');
}

/** The level of lines of a target. */
export function levelFor(filter: LogFilter, target: string): LogLevel {
  for (const [named, level] of filter.targets) if (covers(named, target)) return level;
  return filter.level;
}

/** The level that lets through everything some target may write. */
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
  // The logger's own word, which tests and libraries use.
  if (lower === 'silent') return 'off';
  return LOG_LEVELS.find((level) => level === lower) ?? null;
}
