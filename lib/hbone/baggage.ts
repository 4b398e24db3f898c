/** The `baggage` header: a workload's labels for the peer's telemetry (docs/spec/hbone.md §6). */
import type { DescribedWorkload } from '../metrics/traffic-labels.ts';
import type { Workload } from '../state/model.ts';
import { MAX_KEPT_BAGGAGE, MAX_KEPT_BAGGAGE_LENGTH } from './limits.ts';
import { MAX_BAGGAGE_LENGTH, MAX_BAGGAGE_VALUE_LENGTH, ownText } from './peer-text.ts';

/** A workload as its baggage header describes it; null for members that are absent. */
export type Baggage = DescribedWorkload;

const WORKLOAD_TYPES = ['deployment', 'cronjob', 'pod', 'job'] as const;

/** Visible ASCII and the blanks between list members. */
const PRINTABLE = /^[\x20-\x7e\t]*$/;

/** Characters to escape: all that W3C Baggage §3.3.1.3 forbids in a value, `%`, which begins an escape, and `=`, at which Istio cuts. */
const ESCAPED = /[^!#$&-+\--:<>-[\]-~]+/g;

/** One or more escape sequences in a row; one character may take four. */
const ESCAPES = /(?:%[0-9a-f]{2})+/gi;

/** Headers by workload. An unchanged workload stays the same object. */
const formatted = new WeakMap<Workload, string>();

/**
 * The header that describes a workload, in ASCII. It leaves out members without a value and members that would make it longer than
 * {@link MAX_BAGGAGE_LENGTH}. A value is cut to {@link MAX_BAGGAGE_VALUE_LENGTH} characters.
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
    // A member that does not fit is left out; the others still identify the workload.
    if (header.length + member.length <= MAX_BAGGAGE_LENGTH) header += member;
  }
  return header;
}

/** Escapes a value. Names of Kubernetes, which ztunnel sends unescaped, contain nothing to escape. */
function escapeValue(text: string): string {
  return text
    .slice(0, MAX_BAGGAGE_VALUE_LENGTH)
    .toWellFormed()
    .replace(ESCAPED, (part) =>
      Buffer.from(part).toString('hex').toUpperCase().replace(/../g, '%$&'),
    );
}

/** Reverses {@link escapeValue}. Bytes that are no UTF-8 become U+FFFD (W3C Baggage); a `%` that begins no escape stays. */
function unescapeValue(text: string): string {
  if (!text.includes('%')) return text;
  return text.replace(ESCAPES, (part) =>
    Buffer.from(part.replaceAll('%', ''), 'hex').toString('utf8'),
  );
}

/** Headers parsed lately. Every stream of a peer brings the same one. */
const parsed = new Map<string, Baggage>();

/**
 * Parses a header with escaped values (W3C Baggage) or plain ones (Istio). A header with unprintable characters or longer than
 * {@link MAX_BAGGAGE_LENGTH} counts as absent. A value is cut to {@link MAX_BAGGAGE_VALUE_LENGTH} characters.
 */
export function parseBaggage(header: string | undefined): Baggage {
  if (header === undefined || header.length > MAX_KEPT_BAGGAGE_LENGTH) return parse(header);
  const known = parsed.get(header);
  if (known !== undefined) return known;
  // A peer that sends ever new headers only makes the others be parsed again.
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
    // A slice kept as a label would keep the whole header alive.
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
