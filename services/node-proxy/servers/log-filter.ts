/** Levels of the admin API, least severe last; pino says `silent` for `off`. */
const LEVELS = ['off', 'error', 'warn', 'info', 'debug', 'trace'] as const;

/** A level of the admin API. */
export type AdminLevel = (typeof LEVELS)[number];

/** The outcome of a request to `/logging`: the level to set (null = unchanged), or why it is refused. */
export type LoggingChange =
  | { readonly ok: true; readonly level: AdminLevel | null }
  | { readonly ok: false; readonly reason: string };

/**
 * Reads `?level=…` and `?reset` (spec/observability.md §4). Levels per target are refused: threads and parts
 * share one level here.
 */
export function parseLoggingChange(query: URLSearchParams, initial: AdminLevel): LoggingChange {
  const text = query.get('level');
  const reset = query.has('reset');
  if (text === null || text === '') return { ok: true, level: reset ? initial : null };
  let level: AdminLevel = initial;
  for (const element of text.split(',')) {
    const found = LEVELS.find((candidate) => candidate === element.trim().toLowerCase());
    if (found === undefined) {
      const reason = element.includes('=')
        ? `${element}: levels of single targets are not supported`
        : `${element}: not one of ${LEVELS.join(', ')}`;
      return { ok: false, reason };
    }
    level = found;
  }
  return { ok: true, level };
}

/** The logger's word for a level. */
export function toLoggerLevel(level: AdminLevel): string {
  return level === 'off' ? 'silent' : level;
}

/** The admin API's word for a logger's level. */
export function fromLoggerLevel(level: string): AdminLevel {
  if (level === 'silent') return 'off';
  return LEVELS.find((candidate) => candidate === level) ?? 'error';
}
