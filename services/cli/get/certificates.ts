import type { CertificateRecord } from '../../../lib/identity/certificate-records.ts';
import { askCertificates } from '../../local-mesh/mesh-client.ts';
import type { ResourceKind } from './kinds.ts';
import { fromEachNode } from './nodes.ts';

/** `weft get certificates`: the certificates of each node's proxy. */
export const kind: ResourceKind<CertificateRecord> = {
  columns: [
    ['IDENTITY', (line) => line.identity],
    ['NODE', (line) => line.node],
    ['STATE', (line) => line.state],
    ['NOT BEFORE', (line) => line.notBefore],
    ['NOT AFTER', (line) => line.notAfter],
    ['SERIAL', (line) => line.serial],
  ],
  read: async (mesh) => {
    const found = await fromEachNode(mesh, 'the node proxy', (node) =>
      askCertificates(mesh.servers, node),
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
