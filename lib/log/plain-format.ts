/** A log line as upstream's plain format writes it (docs/spec/observability.md §3). Pure. */

/** Fields whose values are addresses, which upstream writes without quotes. */
const ADDRESS = /(^|\.)(addr|hbone_addr)$/;

/** Keys that stand at the beginning of a line or are said by where it comes from. */
export const HEAD: ReadonlySet<string> = new Set(['level', 'time', 'scope', 'message', 'actor']);

/**
 * `<time>\t<level>\t<target>[:span{fields}…]\t<message>\t<k=v …>` and a newline, from a JSON line. An object among the fields
 * is a span. A line that is no JSON object comes back as it is.
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

/** A field's value, with quotes where upstream has them. */
export function valueText(name: string, value: unknown): string {
  if (typeof value === 'string') {
    // What a peer said must not begin a line of its own.
    return ADDRESS.test(name) && /^[\w.:[\]%-]+$/.test(value) ? value : JSON.stringify(value);
  }
  return JSON.stringify(value);
}

function fieldText(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'string' ? value.replaceAll(/[\t\r\n]/g, ' ') : JSON.stringify(value);
}

/** The clock gives milliseconds; the format has six digits. */
export function microseconds(time: string): string {
  return time.replace(/(\.\d{3})Z$/, '$1000Z');
}
