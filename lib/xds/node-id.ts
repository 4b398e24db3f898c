/** Who a client of the control plane says it is, and whether its token allows that (docs/spec/istiod-ambient.md §3.1). Pure. */
import type { TokenSubject } from '../identity/token.ts';
import { MeshError } from '../errors/mesh-error.ts';
import type { RequestNode } from './server-wire.ts';

/** The parts of `ztunnel~<ip>~<pod>.<namespace>~<namespace>.svc.<domain>`. */
export interface NodeId {
  readonly role: string;
  readonly ip: string;
  readonly pod: string;
  readonly namespace: string;
}

/** Reads a node id. Throws XDS_STREAM that says what is wrong. */
export function parseNodeId(id: string): NodeId {
  const parts = id.split('~');
  const [role = '', ip = '', place = '', domain = ''] = parts;
  const dot = place.lastIndexOf('.');
  const namespace = place.slice(dot + 1);
  if (parts.length !== 4 || role === '' || dot <= 0 || namespace === '') {
    throw new MeshError(
      'XDS_STREAM',
      `node.id must be role~ip~pod.namespace~namespace.svc.domain, got ${JSON.stringify(id.slice(0, 256))}`,
    );
  }
  if (domain.split('.', 1)[0] !== namespace) {
    throw new MeshError(
      'XDS_STREAM',
      `node.id names two namespaces: ${JSON.stringify(id.slice(0, 256))}`,
    );
  }
  return { role, ip, pod: place.slice(0, dot), namespace };
}

/** Throws IDENTITY_REFUSED unless the holder of the token may speak for the node. */
export function authorizeNode(subject: TokenSubject, node: RequestNode, id: NodeId): void {
  const claimed = node.metadata['SERVICE_ACCOUNT'];
  const account = subject.serviceAccount.name;
  if (subject.namespace !== id.namespace) {
    throw new MeshError(
      'IDENTITY_REFUSED',
      `${subject.namespace}/${account} may not speak for a node of namespace ${id.namespace}`,
    );
  }
  if (claimed !== undefined && claimed !== '' && claimed !== account) {
    throw new MeshError(
      'IDENTITY_REFUSED',
      `${subject.namespace}/${account} may not speak for service account ${claimed}`,
    );
  }
}
