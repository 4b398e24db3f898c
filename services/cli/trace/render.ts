/** Renders a traced connection for `weft trace`. Pure. */
import type { AccessFields } from '../../../lib/log/access-log.ts';
import type {
  ConnectionEnd,
  PolicyRecord,
  TunnelRecord,
} from '../../../workers/listener/protocol/connections.ts';
import { factLines } from '../text-table.ts';
import type { Fact } from '../text-table.ts';
import type { FoundRecord, TracedConnection } from './find.ts';

/** The output of `weft trace -o json`; see docs/cli.md. */
export type TraceResult = ReturnType<typeof traceResult>;
type TraceEnd = ReturnType<typeof traceEnd>;

/** The result in the shape of the command line. */
export function traceResult(from: string, to: string, found: TracedConnection) {
  const { record } = found.source;
  const { tunnel } = record;
  return {
    traceId: record.traceId,
    from,
    to,
    source: sourceOf(found.source),
    tunnel: tunnel === null ? null : tunnelOf(tunnel),
    destination: found.destination === null ? null : destinationOf(found.destination),
  };
}

function sourceOf(found: FoundRecord) {
  const { record } = found;
  return {
    ...traceEnd(found),
    protocol: record.protocol,
    /** The destination that the pod dialled. */
    dialled: record.destination,
    nextHop: record.actualDestination,
    route: record.route,
    service: record.destinationService,
    endpoint: record.destinationWorkload,
  };
}

function traceEnd({ node, record }: FoundRecord) {
  return {
    node,
    client: record.source,
    openedAt: new Date(record.openedAtMs).toISOString(),
    bytesSent: record.bytesSent,
    bytesReceived: record.bytesReceived,
    steps: record.steps,
    end: record.end,
    accessLine: record.accessLine,
  };
}

function tunnelOf({ openedAtMs, ...tunnel }: TunnelRecord) {
  return { ...tunnel, openedAt: new Date(openedAtMs).toISOString() };
}

function destinationOf(found: FoundRecord) {
  const { record } = found;
  return {
    ...traceEnd(found),
    peerIdentity: record.sourceIdentity,
    /** This end's name of the tunnel. */
    session: record.tunnel?.session ?? null,
    handshakeMs: record.tunnel?.handshakeMs ?? null,
    policy: record.policy,
    application: record.destination,
  };
}

/** The result for people. */
export function traceLines(result: TraceResult): string[] {
  const { source, tunnel, destination } = result;
  const trace = result.traceId === null ? 'no trace: not tunnelled' : `trace ${result.traceId}`;
  return [
    `${result.from} to ${result.to}  ${trace}`,
    ...part(`source on ${source.node}`, [
      ['client', `${source.client} at ${source.openedAt}`],
      ['decision', decisionText(source)],
      ['dialled', source.dialled],
      ['service', source.service],
      ['endpoint', source.endpoint],
      ['next hop', source.nextHop],
      ...endFacts(source),
    ]),
    ...(tunnel === null
      ? source.protocol === 'TCP' || destination === null
        ? []
        : ['no tunnel: one process serves both ends']
      : part('tunnel', [
          ['session', tunnel.session],
          ['peer', tunnel.peerIdentity],
          ['made', `${tunnel.openedAt}${tunnel.reused ? ', for an earlier connection' : ''}`],
          ['connect', msText(tunnel.connectMs)],
          ['handshake', msText(tunnel.handshakeMs)],
        ])),
    ...(destination === null
      ? [
          source.protocol === 'TCP'
            ? 'destination: plain TCP, nobody else tells of it'
            : 'destination: no record',
        ]
      : part(`destination on ${destination.node}`, [
          ['peer', destination.peerIdentity],
          ['session', destination.session],
          ['policy', policyText(destination.policy)],
          ['application', destination.application],
          ...endFacts(destination),
        ])),
    ...lineOf('source', source.accessLine),
    ...lineOf('destination', destination?.accessLine ?? null),
  ];
}

function part(title: string, facts: readonly Fact[]): string[] {
  return [title, ...factLines(facts, 13)];
}

function endFacts(end: TraceEnd): Fact[] {
  const { understoodMs, admittedMs, connectedMs, firstByteMs } = end.steps;
  const steps: readonly (readonly [string, number | null])[] = [
    ['understood', understoodMs],
    ['admitted', admittedMs],
    ['connected', connectedMs],
    ['first byte', firstByteMs],
  ];
  const taken = steps.flatMap(([name, ms]) => (ms === null ? [] : [`${name} ${msText(ms)}`]));
  return [
    ['after', taken.join(', ')],
    ['bytes', `${end.bytesSent} sent, ${end.bytesReceived} received`],
    ['state', stateText(end.end)],
  ];
}

function stateText(end: ConnectionEnd | null): string {
  if (end === null) return 'open';
  const how = end.error === null ? 'ended' : `failed (${end.flag})`;
  const why = end.error === null ? '' : `: ${end.error}`;
  return `${how} after ${msText(end.durationMs)}${why}`;
}

function decisionText({ route, protocol }: ReturnType<typeof sourceOf>): string {
  if (route === null) return protocol;
  const via = route.via === null || route.via === 'direct' ? '' : ` through a ${route.via}`;
  const again = route.attempts > 1 ? `, attempt ${route.attempts}` : '';
  return `${route.kind}${via}${again}: ${route.reason}`;
}

function policyText(policy: PolicyRecord | null): string | null {
  if (policy === null) return null;
  const rule = policy.rule === null ? '' : `, rule ${policy.rule}`;
  const by = policy.policy === null ? '' : ` by ${policy.policy}${rule}`;
  return `${policy.allowed ? 'allowed' : 'denied'}${by} (${policy.reason})`;
}

function lineOf(side: string, line: AccessFields | null): string[] {
  return line === null ? [] : [`${side} line: ${JSON.stringify(line)}`];
}

function msText(ms: number | null): string | null {
  return ms === null ? null : `${ms.toFixed(1)} ms`;
}
