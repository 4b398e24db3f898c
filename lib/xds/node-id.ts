/** Checks the node that a client of the control plane claims to be (docs/spec/istiod-ambient.md §3.1). Pure. */
import type { TokenSubject } from '../identity/token.ts';
import { MeshError } from '../errors/mesh-error.ts';
import type { RequestNode } from './wire.ts';

/**
 * Throws IDENTITY_REFUSED unless the holder of the token may speak for the node. Throws XDS_STREAM when the node's id is
 * not `ztunnel~<ip>~<pod>.<namespace>~<namespace>.svc.<domain>`.
 */
export function authorizeNode(subject: TokenSubject, node: RequestNode): void {
  const namespace = namespaceOf(node.id);
  const claimed = node.metadata['SERVICE_ACCOUNT'];
  const account = subject.serviceAccount.name;
  if (subject.namespace !== namespace) {
    throw new MeshError(
      'IDENTITY_REFUSED',
      `${subject.namespace}/${account} may not speak for a node of namespace ${namespace}`,
    );
  }
  if (claimed !== undefined && claimed !== '' && claimed !== account) {
    throw new MeshError(
      'IDENTITY_REFUSED',
      `${subject.namespace}/${account} may not speak for service account ${claimed}`,
    );
  }
}

function namespaceOf(id: string): string {
  const parts = id.split('~');
  const [role = '', , pod = '', domain = ''] = parts;
  const dot = pod.lastIndexOf('.');
  const namespace = pod.slice(dot + 1);
  const shown = JSON.stringify(id.slice(0, 256));
  if (parts.length !== 4 || role === '' || dot <= 0 || namespace === '') {
    throw new MeshError(
      'XDS_STREAM',
      `node.id must be role~ip~pod.namespace~namespace.svc.domain, got ${shown}`,
    );
  }
  if (domain.split('.', 1)[0] !== namespace) {
    throw new MeshError('XDS_STREAM', `node.id names two namespaces: ${shown}`);
  }
  return namespace;
}
