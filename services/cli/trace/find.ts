/** Finds the two records of one connection. Pure. */
import type { ConnectionRecord } from '../../../workers/listener/protocol/connections.ts';
import type { PodLine } from '../../local-mesh/supervisor-api.ts';
import type { PortReference } from '../references.ts';

/** A record and the node of its proxy. */
export interface FoundRecord {
  readonly node: string;
  readonly record: ConnectionRecord;
}

/** The records of one connection by its two proxies. */
export interface TracedConnection {
  readonly source: FoundRecord;
  /** Null when the other end is outside the mesh, or its proxy is away or has no record of it. */
  readonly destination: FoundRecord | null;
}

/** Criteria for a connection. */
export interface TraceQuery {
  readonly from: PodLine;
  readonly to: PortReference;
  /** The destination as a pod; null when it is a service. */
  readonly toPod: PodLine | null;
  /** `ip:port` of the client's end, if known. */
  readonly client: string | null;
}

/** The newest matching connection; live ones precede ended ones. Null when none matches. */
export function findConnection(
  query: TraceQuery,
  records: readonly FoundRecord[],
): TracedConnection | null {
  const fitting = records
    .filter(({ record }) => fits(query, record))
    .sort((left, right) => newness(right.record) - newness(left.record));
  for (const source of fitting) {
    const destination = otherEnd(source, records);
    // A busy proxy keeps some of its ended connections only, and the two may have kept others.
    if (source.record.end === null || destination !== null) return { source, destination };
  }
  const [source] = fitting;
  return source === undefined ? null : { source, destination: null };
}

function otherEnd(
  { record: { traceId } }: FoundRecord,
  records: readonly FoundRecord[],
): FoundRecord | null {
  if (traceId === null) return null;
  // A retried connect reached the other side more than once.
  const [destination] = records
    .filter(({ record }) => record.direction === 'inbound' && record.traceId === traceId)
    .sort((left, right) => right.record.openedAtMs - left.record.openedAtMs);
  return destination ?? null;
}

function fits({ from, to, toPod, client }: TraceQuery, record: ConnectionRecord): boolean {
  if (record.direction !== 'outbound' || record.podUid !== from.uid) return false;
  if (client !== null && record.source !== client) return false;
  if (!record.destination.endsWith(`:${to.port}`)) return false;
  if (toPod !== null) return toPod.ips.some((ip) => hostOf(record.destination) === ip);
  const service = record.destinationService ?? '';
  // A service of the mesh, or the host of a service entry.
  return service === to.name || service.startsWith(`${to.name}.${to.namespace}.svc.`);
}

/** Sorts live connections before ended ones. */
function newness(record: ConnectionRecord): number {
  return record.openedAtMs + (record.end === null ? Number.MAX_SAFE_INTEGER / 2 : 0);
}

/** The address of `ip:port` or `[v6]:port`. */
function hostOf(endpoint: string): string {
  return endpoint.slice(0, endpoint.lastIndexOf(':')).replace(/^\[|\]$/g, '');
}
