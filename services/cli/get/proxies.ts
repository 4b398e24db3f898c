/** Kinds that each node's proxy is asked for. */
import type { CertificateRecord } from '../../../lib/identity/certificate-records.ts';
import type { ConnectionRecord } from '../../../workers/listener/protocol/connections.ts';
import { askCertificates, askConnections } from '../../local-mesh/mesh-client.ts';
import { fromEachNode } from '../mesh.ts';
import type { ResourceKind } from './kinds.ts';

/** One line of `weft get connections`: a proxy's record of its end of a connection; docs/cli.md describes it. */
export type ConnectionLine = ReturnType<typeof connectionLine>;

/** The line of a proxy's record. */
export function connectionLine(record: ConnectionRecord) {
  return {
    source: record.source,
    destination: record.destination,
    sourceIdentity: record.sourceIdentity,
    destinationIdentity: record.destinationIdentity,
    direction: record.direction,
    protocol: record.protocol,
    path: record.path ?? null,
    bytesSent: record.bytesSent,
    bytesReceived: record.bytesReceived,
    openedAt: new Date(record.openedAtMs).toISOString(),
  };
}

/** `weft get connections`: live connections, oldest first. */
export const connections: ResourceKind<ConnectionLine> = {
  columns: [
    'source',
    'destination',
    'direction',
    'protocol',
    'path',
    ['SENT', (line) => line.bytesSent],
    ['RECEIVED', (line) => line.bytesReceived],
    ['OPENED', (line) => line.openedAt],
    'sourceIdentity',
    'destinationIdentity',
  ],
  read: async (mesh) => {
    const { lines, warnings } = await fromEachNode(mesh, 'the node proxy', (node) =>
      askConnections(mesh.servers, node),
    );
    const sorted = [...lines].sort((left, right) => left.openedAtMs - right.openedAtMs);
    return { lines: sorted.map(connectionLine), warnings };
  },
};

/** `weft get certificates`: the certificates of each node's proxy. */
export const certificates: ResourceKind<CertificateRecord> = {
  columns: ['identity', 'node', 'state', 'notBefore', 'notAfter', 'serial'],
  read: (mesh) =>
    fromEachNode(mesh, 'the node proxy', (node) => askCertificates(mesh.servers, node)),
};
