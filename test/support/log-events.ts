/** Finds the names of log events in source text. Pure. */

/** A literal that a log call takes as its message. */
export interface LoggedEvent {
  /** Counted from 1. */
  readonly line: number;
  readonly event: string;
}

const LOG_CALL = /[lL]og(?:ger)?\??\.(?:error|warn|info|debug|trace)\(/g;
const LITERAL = /'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`/g;
const EVENT_NAME = /^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.[a-z0-9]+(?:-[a-z0-9]+)*)+$/;

/** Finds the literals in the last argument of each log call: both branches of a condition, but not the values it compares. */
export function loggedEvents(source: string): LoggedEvent[] {
  return [...source.matchAll(LOG_CALL)].flatMap((call) => {
    const message = lastArgument(source, call.index + call[0].length).replace(
      /[!=]== '[^']*'/g,
      '',
    );
    const line = source.slice(0, call.index).split('\n').length;
    return [...message.matchAll(LITERAL)].map((literal) => ({
      line,
      event: literal[1] ?? literal[2] ?? '',
    }));
  });
}

/** True for a dotted name in kebab-case; an interpolated part counts as one word. */
export function isEventName(event: string): boolean {
  return EVENT_NAME.test(event.replace(/\$\{[^}]*\}/g, 'x'));
}

/** Returns the text of the last non-empty argument of the call whose arguments begin at `start`. */
function lastArgument(source: string, start: number): string {
  let depth = 0;
  let quote = '';
  let begin = start;
  let last = '';
  for (let index = start; index < source.length; index += 1) {
    const char = source[index] ?? '';
    if (quote !== '') {
      if (char === '\\') index += 1;
      else if (char === quote) quote = '';
    } else if (`'"\``.includes(char)) {
      quote = char;
    } else if ('([{'.includes(char)) {
      depth += 1;
    } else if (depth === 0 && ',)'.includes(char)) {
      const argument = source.slice(begin, index).trim();
      if (argument !== '') last = argument;
      if (char === ')') return last;
      begin = index + 1;
    } else if (')]}'.includes(char)) {
      depth -= 1;
    }
  }
  return last;
}
