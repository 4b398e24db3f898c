/** Reads the traffic counters of a mesh and checks whether they balance. */
import type { TestMesh } from '../support/mesh.ts';

const NODES = ['node-1', 'node-2'] as const;
const REPORTERS = ['source', 'destination'] as const;

type Reporter = (typeof REPORTERS)[number];

/** Sums over all nodes. */
export interface Counters {
  readonly opened: Readonly<Record<Reporter, number>>;
  readonly closed: Readonly<Record<Reporter, number>>;
  readonly open: number;
  /** Connections to the servers whose connections end in order. */
  readonly orderly: Readonly<Record<Reporter, number>>;
  /** Bytes both ways with those servers. */
  readonly orderlyBytes: Readonly<Record<Reporter, number>>;
  /** Certificates put into use. */
  readonly certificates: number;
}

/** Reads the counters. A connection counts in `open` until the proxies have closed it. */
export async function readCounters(mesh: TestMesh, orderly: readonly string[]): Promise<Counters> {
  const texts = await Promise.all(NODES.map((node) => mesh.stats(node)));
  const lines = texts.flatMap((text) => text.split('\n'));
  const sum = (name: string, accept: (line: string) => boolean = () => true): number =>
    lines
      .filter((line) => line.startsWith(name) && /^[{ ]/.test(line.slice(name.length)))
      .filter(accept)
      .reduce((total, line) => total + Number(line.slice(line.lastIndexOf(' '))), 0);
  const each = (of: (reporter: Reporter) => number): Record<Reporter, number> => ({
    source: of('source'),
    destination: of('destination'),
  });
  const from = (reporter: Reporter) => (line: string) => line.includes(`reporter="${reporter}"`);
  const toOrderly = (reporter: Reporter) => (line: string) =>
    from(reporter)(line) &&
    orderly.some((workload) => line.includes(`destination_workload="${workload}"`));
  return {
    opened: each((reporter) => sum('istio_tcp_connections_opened_total', from(reporter))),
    closed: each((reporter) => sum('istio_tcp_connections_closed_total', from(reporter))),
    open: (await mesh.connections()).length,
    orderly: each((reporter) => sum('istio_tcp_connections_opened_total', toOrderly(reporter))),
    orderlyBytes: each(
      (reporter) =>
        sum('istio_tcp_sent_bytes_total', toOrderly(reporter)) +
        sum('istio_tcp_received_bytes_total', toOrderly(reporter)),
    ),
    certificates: sum('weft_certificates_issued_total'),
  };
}

/** Lists the counters that do not balance although nothing is open. */
export function imbalances(counters: Counters): string[] {
  const { opened, closed, open, orderly, orderlyBytes } = counters;
  const problems = REPORTERS.filter((reporter) => opened[reporter] !== closed[reporter]).map(
    (reporter) =>
      `${reporter}: ${opened[reporter]} opened, ${closed[reporter]} closed, ${open} open`,
  );
  if (orderly.source !== orderly.destination) {
    const { source, destination } = orderly;
    problems.push(`connections: ${source} of the source, ${destination} of the destination`);
  }
  if (orderlyBytes.source !== orderlyBytes.destination) {
    const { source, destination } = orderlyBytes;
    problems.push(`bytes: ${source} by the source, ${destination} by the destination`);
  }
  return problems;
}
