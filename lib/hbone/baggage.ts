/** The `baggage` header: a workload's labels for the peer's telemetry (docs/spec/hbone.md §6). */
import type { Workload } from '../state/model.ts';
import { MAX_KEPT_BAGGAGE, MAX_KEPT_BAGGAGE_LENGTH } from './limits.ts';
import { MAX_BAGGAGE_LENGTH, MAX_BAGGAGE_VALUE_LENGTH, ownText } from './peer-text.ts';

/** What a baggage header says of a workload; null where it is silent. */
export interface Baggage {
  readonly clusterId: string | null;
  readonly namespace: string | null;
  readonly workloadName: string | null;
  readonly canonicalName: string | null;
  readonly canonicalRevision: string | null;
  readonly region: string | null;
  readonly zone: string | null;
}

const WORKLOAD_TYPES = ['deployment', 'cronjob', 'pod', 'job'] as const;

/** Visible ASCII and the blanks between list members. */
const PRINTABLE = /^[\x20-\x7e\t]*$/;

/** All that does not stand for itself in a value (W3C Baggage §3.3.1.3), `%` that begins an escape, and `=`, at which Istio cuts. */
const ESCAPED = /[^!#$&-+\--:<>-[\]-~]+/g;

/** An escape sequence, or several in a row: one character may take four. */
const ESCAPES = /(?:%[0-9a-f]{2})+/gi;

/** A workload is one object for as long as it stays as it is. */
const formatted = new WeakMap<Workload, string>();

/**
 * The header that describes a workload, in ASCII whatever its names are. Members without a value are left out, and those that would make
 * it longer than {@link MAX_BAGGAGE_LENGTH}; a value is cut to {@link MAX_BAGGAGE_VALUE_LENGTH} characters.
 */
export function formatBaggage(workload: Workload): string {
  const known = formatted.get(workload);
  if (known !== undefined) return known;
  const header = format(workload);
  formatted.set(workload, header);
  return header;
}

function format(workload: Workload): string {
  const members: readonly (readonly [string, string])[] = [
    ['k8s.cluster.name', workload.clusterId],
    ['k8s.namespace.name', workload.namespace],
    [`k8s.${workload.workloadType}.name`, workload.workloadName],
    ['service.name', workload.canonicalName],
    ['service.version', workload.canonicalRevision],
    ['cloud.region', workload.locality.region],
    ['cloud.availability_zone', workload.locality.zone],
  ];
  let header = '';
  for (const [key, text] of members) {
    if (text === '') continue;
    const member = `${header === '' ? '' : ','}${key}=${escapeValue(text)}`;
    // The others still tell who it is.
    if (header.length + member.length <= MAX_BAGGAGE_LENGTH) header += member;
  }
  return header;
}

/** What ztunnel sends as it is, names of Kubernetes, contains nothing that would be escaped. */
function escapeValue(text: string): string {
  return text
    .slice(0, MAX_BAGGAGE_VALUE_LENGTH)
    .toWellFormed()
    .replace(ESCAPED, (part) =>
      Buffer.from(part).toString('hex').toUpperCase().replace(/../g, '%$&'),
    );
}

/** Bytes that are no UTF-8 become U+FFFD, as W3C Baggage has it; a `%` that begins no escape stands for itself. */
function unescapeValue(text: string): string {
  if (!text.includes('%')) return text;
  return text.replace(ESCAPES, (part) =>
    Buffer.from(part.replaceAll('%', ''), 'hex').toString('utf8'),
  );
}

/** Headers read lately: every stream of a peer brings the same. */
const parsed = new Map<string, Baggage>();

/**
 * Reads a header, with escaped values (W3C Baggage) or plain ones (Istio); one with unprintable characters or longer than {@link MAX_BAGGAGE_LENGTH} counts as absent. A value is
 * cut to {@link MAX_BAGGAGE_VALUE_LENGTH} characters.
 */
export function parseBaggage(header: string | undefined): Baggage {
  if (header === undefined || header.length > MAX_KEPT_BAGGAGE_LENGTH) return parse(header);
  const known = parsed.get(header);
  if (known !== undefined) return known;
  // Whoever sends ever new ones only makes the others be read again.
  if (parsed.size >= MAX_KEPT_BAGGAGE) parsed.clear();
  const baggage = parse(header);
  parsed.set(header, baggage);
  return baggage;
}

function parse(header: string | undefined): Baggage {
  const values = new Map<string, string>();
  if (header !== undefined && header.length <= MAX_BAGGAGE_LENGTH && PRINTABLE.test(header)) {
    for (const member of header.split(',')) {
      const [key = '', value = ''] = member.split('=');
      values.set(key.trim(), unescapeValue(value.trim()));
    }
  }
  const get = (key: string): string | null => {
    const value = values.get(key);
    // What a label keeps must not keep the header it was part of.
    return value === undefined || value === '' ? null : ownText(value, MAX_BAGGAGE_VALUE_LENGTH);
  };
  const names = WORKLOAD_TYPES.map((type) => get(`k8s.${type}.name`));
  return {
    clusterId: get('k8s.cluster.name'),
    namespace: get('k8s.namespace.name'),
    workloadName: names.find((name) => name !== null) ?? null,
    canonicalName: get('service.name'),
    canonicalRevision: get('service.version'),
    region: get('cloud.region'),
    zone: get('cloud.availability_zone'),
  };
}
