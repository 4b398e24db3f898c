/** Changes of the log settings at run time: `/logging` and `/access_log` of the admin server. */
import type { AccessSettings } from '../../../lib/log/access-gate.ts';
import { formatAccessRules, parseAccessRules } from '../../../lib/log/access-rules.ts';
import { extendLogFilter, formatLogFilter, parseLogFilter } from '../../../lib/log/log-filter.ts';

/** Longest `level` or `rules` accepted, characters. */
export const MAX_LOGGING_TEXT = 8_192;
const MAX_LINES_PER_SECOND = 1_000_000;

/**
 * Reads `?level=…` and `?reset` (docs/spec/observability.md §4): adds levels to the current filter, or to the initial one. Null
 * means no change. Throws an Error that says what is wrong.
 */
export function loggingChange(
  query: URLSearchParams,
  filters: { readonly current: string; readonly initial: string },
): string | null {
  const text = query.get('level') ?? '';
  const reset = isReset(query);
  if (text === '') return reset ? filters.initial : null;
  if (text.length > MAX_LOGGING_TEXT) throw new Error('the level is too long');
  const base = parseLogFilter(reset ? filters.initial : filters.current);
  return formatLogFilter(extendLogFilter(base, text));
}

/**
 * Reads `?rules=…`, `?rate=…` and `?reset` of `/access_log`; a setting that is not named stays. Null means no change. Throws an
 * Error that says what is wrong.
 */
export function accessLogChange(
  query: URLSearchParams,
  settings: { readonly current: AccessSettings; readonly initial: AccessSettings },
): AccessSettings | null {
  const rules = query.get('rules');
  const rate = query.get('rate');
  const reset = isReset(query);
  if (rules === null && rate === null && !reset) return null;
  const base = reset ? settings.initial : settings.current;
  if (rules !== null && rules.length > MAX_LOGGING_TEXT) throw new Error('the rules are too long');
  const linesPerSecond = rate === null ? base.linesPerSecond : Number(rate);
  if (rate !== null && (!/^\d{1,7}$/.test(rate) || linesPerSecond > MAX_LINES_PER_SECOND)) {
    const got = JSON.stringify(rate.slice(0, 200));
    throw new Error(`rate must be a whole number from 0 to ${MAX_LINES_PER_SECOND}, got ${got}`);
  }
  const text = rules === null ? base.rules : formatAccessRules(parseAccessRules(rules));
  return { rules: text, linesPerSecond };
}

/** Returns true for `?reset`, `?reset=` and `?reset=true`. */
function isReset(query: URLSearchParams): boolean {
  const value = query.get('reset');
  return value !== null && value.toLowerCase() !== 'false';
}
