import { pino } from 'pino';
import type { DestinationStream, LogFn, Logger as PinoLogger } from 'pino';
import { present } from '../errors/assert.ts';
import type { LineStream } from './line-output.ts';
import { isoTime, jsonLines, plainLines } from './line-text.ts';
import type { LineText } from './line-text.ts';
import { formatLogFilter, levelFor, mostVerbose, parseLogFilter } from './log-filter.ts';
import type { LogFilter, LogLevel } from './log-filter.ts';
import { plainLine } from './plain-format.ts';

/** The structured logger of an actor; it writes lines to standard output. */
export type Logger = PinoLogger;

/** The form of lines: JSON, or upstream's plain text (docs/spec/observability.md §3). */
export type LogFormat = 'json' | 'plain';

/** The settings of a logger. Every line carries the names. */
export interface LoggerOptions {
  readonly actor: string;
  readonly node?: string | null;
  readonly worker?: number;
  /** A level or a filter (lib/log/log-filter.ts). */
  readonly level?: string;
  readonly format?: LogFormat;
}

/** The present settings of a logger. */
export interface LoggerState {
  readonly filter: string;
  readonly format: LogFormat;
}

interface Internals {
  filter: LogFilter;
  readonly format: LogFormat;
  readonly base: Readonly<Record<string, string | number>>;
  readonly out: DestinationStream | LineStream;
  /** The numeric level from which lines of a target are written; cleared when the filter changes. */
  readonly thresholds: Map<string, number>;
}

/** pino's numbers; no line reaches that of `off`. */
const NUMBERS: Readonly<Record<LogLevel, number>> = {
  off: Infinity,
  error: 50,
  warn: 40,
  info: 30,
  debug: 20,
  trace: 10,
};

/** The event `policy.decision` has the target `policy`. */
const EVENT_TARGET = /^[a-z0-9_-]+(?=\.)/;

const internals = new WeakMap<Logger, Internals>();

/**
 * Makes a logger. It writes to `destination`, or synchronously to file descriptor 1, which is safe in threads and loses nothing
 * when the process is killed. Every line has a target, `scope`: the field of that name, else the first word of the event's
 * name. Throws an Error for a level that is not a filter.
 */
export function createLogger(
  options: LoggerOptions,
  destination?: DestinationStream | LineStream,
): Logger {
  const base: Record<string, string | number> = { actor: options.actor };
  if (options.node !== undefined && options.node !== null) base['node'] = options.node;
  if (options.worker !== undefined) base['worker'] = options.worker;
  const format = options.format ?? 'json';
  const filter = parseLogFilter(options.level ?? 'info');
  const out = destination ?? pino.destination({ fd: 1, sync: true });
  const state: Internals = { filter, format, base, out, thresholds: new Map() };
  const log = pino(
    {
      base,
      level: pinoLevel(state.filter),
      timestamp: () => `,"time":"${isoTime()}"`,
      formatters: { level: (label) => ({ level: label }) },
      messageKey: 'message',
      errorKey: 'error',
      hooks: {
        logMethod(parameters, method, number) {
          const line = withTarget(parameters, options.actor);
          if (number >= threshold(state, line.target)) method.apply(this, line.parameters);
        },
      },
    },
    format === 'plain' ? { write: (line: string) => out.write(plainLine(line)) } : out,
  );
  internals.set(log, state);
  return log;
}

/** Returns the present settings of a logger. */
export function loggerState(log: Logger): LoggerState {
  const { filter, format } = stateOf(log);
  return { filter: formatLogFilter(filter), format };
}

/** Changes the filter of a logger. Throws an Error for a text that is not a filter; then nothing changes. */
export function setLogFilter(log: Logger, text: string): void {
  const filter = parseLogFilter(text);
  const state = stateOf(log);
  state.filter = filter;
  state.thresholds.clear();
  log.level = pinoLevel(filter);
}

/** Makes lines of one message and target at level info, whose fields the caller adds one by one. */
export interface InfoLines {
  /** Begins a line; null while the filter lets none through. */
  begin(): LineText | null;
  /** Writes the line after all lines before it, and soon rather than at once where the output can gather lines. */
  gather(line: LineText): void;
}

/** Makes {@link InfoLines}. Their text is that of the logger itself, at a tenth of the cost. */
export function infoLines(log: Logger, target: string, message: string): InfoLines {
  const state = stateOf(log);
  const { base, format, out } = state;
  const parts = { level: 'info', base, target, message };
  const make = format === 'plain' ? plainLines(parts) : jsonLines(parts);
  return {
    begin: () => (threshold(state, target) <= NUMBERS.info ? make(isoTime()) : null),
    gather: (line) => {
      if ('gather' in out) out.gather(line.end());
      else out.write(line.end());
    },
  };
}

function stateOf(log: Logger): Internals {
  return present(internals.get(log), 'the logger was made by createLogger');
}

function pinoLevel(filter: LogFilter): string {
  const level = mostVerbose(filter);
  return level === 'off' ? 'silent' : level;
}

/** Caches by target. Targets come from code, never from peers, so the map is small. */
function threshold(state: Internals, target: string): number {
  const known = state.thresholds.get(target);
  if (known !== undefined) return known;
  const number = NUMBERS[levelFor(state.filter, target)];
  state.thresholds.set(target, number);
  return number;
}

/** Returns the target among the fields of a line. */
function ownTarget(first: unknown): string | null {
  if (typeof first !== 'object' || first === null) return null;
  const own: unknown = Reflect.get(first, 'scope');
  return typeof own === 'string' ? own : null;
}

function withTarget(
  parameters: Parameters<LogFn>,
  actor: string,
): { readonly target: string; readonly parameters: Parameters<LogFn> } {
  const own = ownTarget(parameters[0]);
  if (own !== null) return { target: own, parameters };
  const [first, ...rest]: readonly unknown[] = parameters;
  const fields = typeof first === 'object' && first !== null ? first : null;
  const message = fields === null ? first : rest[0];
  const target = (typeof message === 'string' ? EVENT_TARGET.exec(message)?.[0] : null) ?? actor;
  // An error as the first argument has a serializer of its own.
  if (fields instanceof Error) return { target, parameters };
  const named = { scope: target, ...fields };
  const changed = fields === null ? [named, first, ...rest] : [named, ...rest];
  return { target, parameters: changed as unknown as Parameters<LogFn> };
}
