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

/** A workload is one object for as long as it stays as it is. */
const formatted = new WeakMap<Workload, string>();

/** The header that describes a workload; members without a value are left out. */
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
  return members
    .filter(([, value]) => value !== '')
    .map(([key, value]) => `${key}=${value}`)
    .join(',');
}

/** Headers read lately: every stream of a peer brings the same. */
const parsed = new Map<string, Baggage>();

/**
 * Reads a header; one with unprintable characters or longer than {@link MAX_BAGGAGE_LENGTH} counts as absent. A value is
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
      values.set(key.trim(), value.trim());
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
