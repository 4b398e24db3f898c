/** Changes of the log settings at run time: `/logging` and `/access_log` of the admin server. */
import type { AccessSettings } from '../../../lib/log/access-gate.ts';
import { formatAccessRules, parseAccessRules } from '../../../lib/log/access-rules.ts';
import { extendLogFilter, formatLogFilter, parseLogFilter } from '../../../lib/log/log-filter.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';

/** The outcome of a request: the value to put in force (null = no change), or the reason of its refusal. */
export type Change<T> =
  | { readonly ok: true; readonly value: T | null }
  | { readonly ok: false; readonly reason: string };

/** Longest `level` or `rules` accepted, characters. */
export const MAX_LOGGING_TEXT = 8_192;
const MAX_LINES_PER_SECOND = 1_000_000;

/** Reads `?level=…` and `?reset` (docs/spec/observability.md §4): adds levels to the current filter, or to the initial one. */
export function loggingChange(
  query: URLSearchParams,
  filters: { readonly current: string; readonly initial: string },
): Change<string> {
  const text = query.get('level') ?? '';
  const reset = isReset(query);
  if (text === '') return { ok: true, value: reset ? filters.initial : null };
  if (text.length > MAX_LOGGING_TEXT) return { ok: false, reason: 'the level is too long' };
  try {
    const base = parseLogFilter(reset ? filters.initial : filters.current);
    return { ok: true, value: formatLogFilter(extendLogFilter(base, text)) };
  } catch (error) {
    return { ok: false, reason: errorText(error) };
  }
}

/** Reads `?rules=…`, `?rate=…` and `?reset` of `/access_log`; a setting that is not named stays. */
export function accessLogChange(
  query: URLSearchParams,
  settings: { readonly current: AccessSettings; readonly initial: AccessSettings },
): Change<AccessSettings> {
  const rules = query.get('rules');
  const rate = query.get('rate');
  const reset = isReset(query);
  if (rules === null && rate === null && !reset) return { ok: true, value: null };
  const base = reset ? settings.initial : settings.current;
  if (rules !== null && rules.length > MAX_LOGGING_TEXT) {
    return { ok: false, reason: 'the rules are too long' };
  }
  const linesPerSecond = rate === null ? base.linesPerSecond : Number(rate);
  if (rate !== null && (!/^\d{1,7}$/.test(rate) || linesPerSecond > MAX_LINES_PER_SECOND)) {
    const reason = `rate must be a whole number from 0 to ${MAX_LINES_PER_SECOND}, got ${JSON.stringify(rate.slice(0, 200))}`;
    return { ok: false, reason };
  }
  try {
    const text = rules === null ? base.rules : formatAccessRules(parseAccessRules(rules));
    return { ok: true, value: { rules: text, linesPerSecond } };
  } catch (error) {
    return { ok: false, reason: errorText(error) };
  }
}

/** Returns true for `?reset`, `?reset=` and `?reset=true`. */
function isReset(query: URLSearchParams): boolean {
  const value = query.get('reset');
  return value !== null && value.toLowerCase() !== 'false';
}
