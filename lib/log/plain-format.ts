/** Writes log lines in upstream's plain format (docs/spec/observability.md §3). Pure. */

/** Fields with addresses, which upstream writes without quotes. */
const ADDRESS = /(^|\.)(addr|hbone_addr)$/;

/** Keys that stand at the beginning of a line, or that the file of the log implies. */
export const HEAD: ReadonlySet<string> = new Set(['level', 'time', 'scope', 'message', 'actor']);

/**
 * Turns a JSON line into `<time>\t<level>\t<target>[:span{fields}…]\t<message>\t<k=v …>` and a newline. An object among the
 * fields is a span. A line that is not a JSON object is returned unchanged.
 */
export function plainLine(json: string): string {
  let fields: Record<string, unknown>;
  try {
    fields = JSON.parse(json) as Record<string, unknown>;
  } catch {
    return json;
  }
  const spans: string[] = [];
  const pairs: string[] = [];
  for (const [name, value] of Object.entries(fields)) {
    if (HEAD.has(name) || value === null || value === undefined) continue;
    if (typeof value === 'object' && !Array.isArray(value)) spans.push(spanText(name, value));
    else pairs.push(`${name}=${valueText(name, value)}`);
  }
  const head = [
    microseconds(fieldText(fields['time'])),
    fieldText(fields['level']),
    [fieldText(fields['scope']), ...spans].join(':'),
    fieldText(fields['message']),
  ];
  return `${head.join('\t')}\t${pairs.join(' ')}\n`;
}

function spanText(name: string, fields: object): string {
  const pairs = Object.entries(fields).map(([key, value]) => `${key}=${fieldText(value)}`);
  return `${name}{${pairs.join(' ')}}`;
}

/** Writes a field's value, with quotes where upstream has them. */
export function valueText(name: string, value: unknown): string {
  if (typeof value === 'string') {
    // A peer's text must not begin a line of its own.
    return ADDRESS.test(name) && /^[\w.:[\]%-]+$/.test(value) ? value : JSON.stringify(value);
  }
  return JSON.stringify(value);
}

function fieldText(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'string' ? value.replaceAll(/[\t\r\n]/g, ' ') : JSON.stringify(value);
}

/** Pads the clock's milliseconds to the six digits of the format. */
export function microseconds(time: string): string {
  return time.replace(/(\.\d{3})Z$/, '$1000Z');
}
