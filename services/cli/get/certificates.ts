import type { CertificateRecord } from '../../../lib/identity/certificate-records.ts';
import { askCertificates } from '../../local-mesh/mesh-client.ts';
import type { ResourceKind } from './kinds.ts';
import { fromEachNode } from './nodes.ts';

/** `weft get certificates`: what each node's proxy holds. */
export const kind: ResourceKind<CertificateRecord> = {
  header: ['IDENTITY', 'NODE', 'STATE', 'NOT BEFORE', 'NOT AFTER', 'SERIAL'],
  row: (line) => [
    line.identity,
    line.node,
    line.state,
    line.notBefore ?? '-',
    line.notAfter ?? '-',
    line.serial ?? '-',
  ],
  read: async (mesh) => {
    const found = await fromEachNode(mesh, 'the node proxy', (node) =>
      askCertificates(mesh.paths, node),
    );
    const lines = found.lines.map(({ identity, node, serial, notBefore, notAfter, state }) => ({
      identity,
      node,
      serial,
      notBefore,
      notAfter,
      state,
    }));
    return { ...found, lines };
  },
};
