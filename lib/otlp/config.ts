import type * as z from 'zod';
import { configInvalid } from '../config/define-config.ts';
import { DEFAULT_EXPORT_TIMEOUT_MS } from './limits.ts';
import type { OtlpSettings, OtlpTarget, QueueSettings, Signal } from './settings.ts';
import type { otlpVariables } from './variables.ts';

type Variables = typeof otlpVariables;
type Values = { readonly [Name in keyof Variables]: z.output<Variables[Name]['schema']> };
type Scope = 'TRACES_' | 'METRICS_' | 'LOGS_';

const SCOPES: Readonly<Record<Signal, Scope>> = {
  traces: 'TRACES_',
  metrics: 'METRICS_',
  logs: 'LOGS_',
};
const PROTOCOL = 'http/protobuf';
const COMPRESSIONS: ReadonlySet<string> = new Set(['gzip', 'none']);
/** Header names of RFC 9110. Values have only visible ASCII and blanks, so that none can add a line. */
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const HEADER_VALUE = /^[\x20-\x7e\t]*$/;
/** Headers that the exporter sets itself. */
const RESERVED_HEADERS: ReadonlySet<string> = new Set(['content-type', 'content-length', 'host']);

/**
 * Makes the settings from the variables; null where nothing is exported. Throws one CONFIG_INVALID that names every bad
 * variable. It never shows the value of a variable that may hold credentials.
 */
export function otlpSettings(values: Values): OtlpSettings | null {
  const problems: string[] = [];
  const reader = new Reader(values, problems);
  const disabled = reader.disabled();
  const traces = reader.target('traces');
  const metrics = reader.target('metrics');
  const logs = reader.target('logs');
  const share = reader.share();
  const resource = reader.resource();
  const spans = reader.queue('BSP');
  const lines = reader.queue('BLRP');
  if (problems.length > 0) throw configInvalid(problems);
  if (disabled || (traces === null && metrics === null && logs === null)) return null;
  return {
    resource,
    traces: traces === null ? null : { ...traces, queue: spans, share },
    metrics:
      metrics === null ? null : { ...metrics, intervalMs: values.OTEL_METRIC_EXPORT_INTERVAL },
    logs: logs === null ? null : { ...logs, queue: lines },
  };
}

class Reader {
  readonly #values: Values;
  readonly #problems: string[];

  constructor(values: Values, problems: string[]) {
    this.#values = values;
    this.#problems = problems;
  }

  disabled(): boolean {
    const text = this.#values.OTEL_SDK_DISABLED;
    if (text !== 'true' && text !== 'false') {
      this.#problem('OTEL_SDK_DISABLED must be true or false');
    }
    return text === 'true';
  }

  /** Returns the endpoint of a signal; null where it is not exported. */
  target(signal: Signal): OtlpTarget | null {
    const url = this.#url(signal);
    if (url === null) return null;
    const exporter = this.#values[`OTEL_${SCOPES[signal]}EXPORTER`];
    const protocol = this.#either(signal, 'PROTOCOL');
    if (protocol !== null && protocol.value !== PROTOCOL) {
      const got = JSON.stringify(protocol.value);
      this.#problem(`${protocol.name} must be ${PROTOCOL}, the only one built, got ${got}`);
    }
    const compression = this.#either(signal, 'COMPRESSION');
    if (compression !== null && !COMPRESSIONS.has(compression.value)) {
      const got = JSON.stringify(compression.value);
      this.#problem(`${compression.name} must be gzip or none, got ${got}`);
    }
    const certificate = this.#either(signal, 'CLIENT_CERTIFICATE');
    const key = this.#either(signal, 'CLIENT_KEY');
    if ((certificate === null) !== (key === null)) {
      const [lone, other] =
        key === null
          ? [certificate?.name, 'OTEL_EXPORTER_OTLP_CLIENT_KEY']
          : [key.name, 'OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE'];
      this.#problem(`${lone} needs ${other} too`);
    }
    if (exporter === 'none') return null;
    return {
      url,
      headers: this.#headers(signal),
      timeoutMs:
        this.#values[`OTEL_EXPORTER_OTLP_${SCOPES[signal]}TIMEOUT`] ??
        this.#values.OTEL_EXPORTER_OTLP_TIMEOUT ??
        DEFAULT_EXPORT_TIMEOUT_MS,
      gzip: compression?.value === 'gzip',
      caFile: this.#either(signal, 'CERTIFICATE')?.value ?? null,
      certificateFile: certificate?.value ?? null,
      keyFile: key?.value ?? null,
    };
  }

  share(): number {
    const { OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: argument } = this.#values;
    if (sampler.endsWith('always_on')) return 1;
    if (sampler.endsWith('always_off')) return 0;
    if (argument === null) return 1;
    const share = Number(argument);
    if (argument.trim() !== '' && share >= 0 && share <= 1) return share;
    const got = JSON.stringify(argument);
    this.#problem(`OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1, got ${got}`);
    return 1;
  }

  resource(): Readonly<Record<string, string>> {
    const name = 'OTEL_RESOURCE_ATTRIBUTES';
    const attributes = this.#pairs(name, this.#values[name]);
    const service = this.#values.OTEL_SERVICE_NAME;
    return service === null ? attributes : { ...attributes, 'service.name': service };
  }

  queue(kind: 'BSP' | 'BLRP'): QueueSettings {
    const maxItems = this.#values[`OTEL_${kind}_MAX_QUEUE_SIZE`];
    const batchItems = this.#values[`OTEL_${kind}_MAX_EXPORT_BATCH_SIZE`];
    if (batchItems > maxItems) {
      this.#problem(
        `OTEL_${kind}_MAX_EXPORT_BATCH_SIZE must be at most OTEL_${kind}_MAX_QUEUE_SIZE, got ${batchItems} and ${maxItems}`,
      );
    }
    return { maxItems, batchItems, delayMs: this.#values[`OTEL_${kind}_SCHEDULE_DELAY`] };
  }

  /** Returns the variable of the signal, else the one for all signals. */
  #either<
    Kind extends 'PROTOCOL' | 'COMPRESSION' | 'CERTIFICATE' | 'CLIENT_CERTIFICATE' | 'CLIENT_KEY',
  >(signal: Signal, kind: Kind): { readonly name: string; readonly value: string } | null {
    for (const scope of [SCOPES[signal], ''] as const) {
      const name = `OTEL_EXPORTER_OTLP_${scope}${kind}` as const;
      const value = this.#values[name];
      if (value !== null) return { name, value };
    }
    return null;
  }

  #url(signal: Signal): string | null {
    const own = `OTEL_EXPORTER_OTLP_${SCOPES[signal]}ENDPOINT` as const;
    const whole = this.#values[own];
    if (whole !== null) return this.#parsedUrl(own, whole)?.href ?? null;
    const name = 'OTEL_EXPORTER_OTLP_ENDPOINT';
    const base = this.#values[name];
    const url = base === null ? null : this.#parsedUrl(name, base);
    if (url === null) return null;
    url.pathname = `${url.pathname.replace(/\/+$/, '')}/v1/${signal}`;
    return url.href;
  }

  /** Parses a URL. Problems do not show the text, which may hold a password. */
  #parsedUrl(name: string, text: string): URL | null {
    const url = URL.parse(text);
    if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
      this.#problem(`${name} must be a URL such as http://collector:4318`);
      return null;
    }
    if (url.username !== '' || url.password !== '') {
      this.#problem(`${name} must not hold credentials: OTEL_EXPORTER_OTLP_HEADERS carries them`);
      return null;
    }
    return url;
  }

  #headers(signal: Signal): Readonly<Record<string, string>> {
    const all: Record<string, string> = {};
    for (const scope of ['', SCOPES[signal]] as const) {
      const name = `OTEL_EXPORTER_OTLP_${scope}HEADERS` as const;
      for (const [header, value] of Object.entries(this.#pairs(name, this.#values[name]))) {
        const known = header.toLowerCase();
        if (!HEADER_NAME.test(header) || !HEADER_VALUE.test(value)) {
          this.#problem(`${name} holds something that is no header`);
        } else if (RESERVED_HEADERS.has(known)) {
          this.#problem(`${name} must not set ${known}`);
        } else {
          all[known] = value;
        }
      }
    }
    return all;
  }

  /** Parses `name=value,…`, percent-encoded (the specification's form of W3C baggage). */
  #pairs(name: string, text: string | null): Record<string, string> {
    const pairs: Record<string, string> = {};
    for (const element of (text ?? '').split(',').map((part) => part.trim())) {
      if (element === '') continue;
      const at = element.indexOf('=');
      const pair = at < 1 ? null : decoded(element.slice(0, at), element.slice(at + 1));
      if (pair === null) this.#problem(`${name} must be name=value,…, percent-encoded`);
      else pairs[pair.name] = pair.value;
    }
    return pairs;
  }

  /** Adds a problem once, because signals share variables. */
  #problem(text: string): void {
    if (!this.#problems.includes(text)) this.#problems.push(text);
  }
}

function decoded(name: string, value: string): { name: string; value: string } | null {
  try {
    const pair = { name: decodeURIComponent(name).trim(), value: decodeURIComponent(value).trim() };
    return pair.name === '' || pair.name === '__proto__' ? null : pair;
  } catch {
    // URIError: a % that encodes nothing.
    return null;
  }
}
