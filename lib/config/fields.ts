import * as z from 'zod';

/** A schema for one environment variable: text or absent in, a typed value out. */
export type Field<T> = z.ZodType<T, string | undefined>;

/** Makes a {@link Field}: required without options, or with a default, or optional (null when absent). */
export interface FieldBuilder<T> {
  (): Field<T>;
  (options: { readonly default: T }): Field<T>;
  (options: { readonly optional: true }): Field<T | null>;
}

/** Thrown by parsers; its message says why a text is not acceptable. */
class FieldError extends Error {}

/**
 * Returns a builder of fields over `parse`, which throws an Error with the reason. An empty variable counts as absent, because
 * container platforms pass unset values that way. `show` writes a default as a user would; the schema has it as description.
 */
export function makeField<T>(
  parse: (text: string) => T,
  show: (value: T) => string = String,
): FieldBuilder<T> {
  return ((options?: { default?: T; optional?: boolean }): Field<T | null> => {
    const schema = z.union([z.string(), z.undefined()]).transform((text, context): T | null => {
      if (text === undefined || text === '') {
        if (options?.optional === true) return null;
        if (options !== undefined && 'default' in options) return options.default;
        context.addIssue({ code: 'custom', message: 'is required' });
        return z.NEVER;
      }
      try {
        return parse(text);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        context.addIssue({ code: 'custom', message: `${reason}, got ${JSON.stringify(text)}` });
        return z.NEVER;
      }
    });
    const fallback = options?.default;
    return fallback === undefined ? schema : schema.describe(show(fallback));
  }) as FieldBuilder<T>;
}

const DURATION_UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Parses `500ms`, `5s`, `1m30s` or `24h` to milliseconds. Throws an Error that names the expected form. */
export function parseDuration(text: string): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/gy)];
  const consumed = parts.reduce((length, part) => length + part[0].length, 0);
  if (parts.length === 0 || consumed !== text.length) {
    throw new FieldError('must be a duration such as 500ms, 5s or 1m30s');
  }
  return parts.reduce(
    (total, part) => total + Number(part[1]) * (DURATION_UNITS_MS[part[2] ?? ''] ?? 0),
    0,
  );
}

/** Writes milliseconds as the shortest text that {@link parseDuration} accepts. */
function showDuration(ms: number): string {
  // One day is written as 24h, longer times as days.
  const units = ms > 86_400_000 ? ['d', 'h', 'm', 's'] : ['h', 'm', 's'];
  const unit = units.find((name) => ms > 0 && ms % (DURATION_UNITS_MS[name] ?? 1) === 0);
  return unit === undefined ? `${ms}ms` : `${ms / (DURATION_UNITS_MS[unit] ?? 1)}${unit}`;
}

const BYTE_UNITS: Readonly<Record<string, number>> = {
  '': 1,
  KiB: 1024,
  MiB: 1024 ** 2,
  GiB: 1024 ** 3,
};

/** Parses `4194304` or `4MiB` to bytes. Throws an Error that names the expected form. */
export function parseBytes(text: string): number {
  const match = /^(\d+)(KiB|MiB|GiB)?$/.exec(text);
  if (match === null) throw new FieldError('must be a number of bytes such as 65536 or 4MiB');
  return Number(match[1]) * (BYTE_UNITS[match[2] ?? ''] ?? 1);
}

/** Any text. */
export const text = makeField((value) => value);
/** Milliseconds from a duration text. */
export const duration = makeField(parseDuration, showDuration);
/** Bytes. */
export const bytes = makeField(parseBytes);

/** `true` or `false`, any case. */
export const bool = makeField((value) => {
  const lower = value.toLowerCase();
  if (lower !== 'true' && lower !== 'false') throw new FieldError('must be true or false');
  return lower === 'true';
});

/** A TCP port, 0 to 65535. */
export const port = integer({ min: 0, max: 65_535 });

/** Comma-separated texts, trimmed, empty ones dropped. */
export const list = makeField((value): readonly string[] =>
  value
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== ''),
);

/** `namespace/account`, several of them comma-separated. */
export const accounts = makeField((value): readonly string[] => {
  const items = value.split(',').map((item) => item.trim());
  const bad = items.find((item) => !/^[^/\s]+\/[^/\s]+$/.test(item));
  if (bad !== undefined) throw new FieldError('must be namespace/account,namespace/account');
  return items;
});

/** A whole number within the bounds. */
export function integer(bounds: { min?: number; max?: number } = {}): FieldBuilder<number> {
  const min = bounds.min ?? Number.MIN_SAFE_INTEGER;
  const max = bounds.max ?? Number.MAX_SAFE_INTEGER;
  return makeField((value) => {
    const number = Number(value);
    if (!/^-?\d+$/.test(value) || number < min || number > max) {
      throw new FieldError(`must be a whole number from ${min} to ${max}`);
    }
    return number;
  });
}

/** One of the given words. */
export function oneOf<const Word extends string>(...words: readonly Word[]): FieldBuilder<Word> {
  return makeField((value) => {
    const word = words.find((candidate) => candidate === value);
    if (word === undefined) throw new FieldError(`must be one of ${words.join(', ')}`);
    return word;
  });
}

/** An address to listen at or connect to: a unix socket path, or a TCP host and port. */
export type Endpoint =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

/** Parses `unix:/path`, `host:port` or `[v6]:port`. Throws an Error that names the expected form. */
export function parseEndpoint(value: string): Endpoint {
  if (value.startsWith('unix:')) {
    const path = value.slice('unix:'.length).replace(/^\/\/(?=\/)/, '');
    if (!path.startsWith('/')) throw new FieldError('must be unix:/absolute/path or host:port');
    return { kind: 'unix', path };
  }
  const match = /^(?:\[([^\]]+)\]|([^:]*)):(\d{1,5})$/.exec(value);
  const number = Number(match?.[3]);
  if (match === null || number > 65_535) {
    throw new FieldError('must be unix:/absolute/path, host:port or [v6]:port');
  }
  return { kind: 'tcp', host: match[1] ?? match[2] ?? '', port: number };
}

/** An {@link Endpoint}. */
export const endpoint = makeField(parseEndpoint, (value) => {
  if (value.kind === 'unix') return `unix:${value.path}`;
  return `${value.host.includes(':') ? `[${value.host}]` : value.host}:${value.port}`;
});
