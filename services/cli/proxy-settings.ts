/** Reads and changes settings of running node proxies. */
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { UsageError } from '../../lib/errors/usage-error.ts';
import { chosenNodes } from './mesh.ts';
import { withMesh } from './open-mesh.ts';
import type { CommonOptions } from './output.ts';
import { ask } from '../local-mesh/unix-http.ts';

/** The answer of a node's proxy. */
export interface ProxyAnswer {
  readonly node: string;
  readonly body: string;
}

/**
 * Asks the proxies of every chosen node. Throws UsageError for an unknown node or a request that a proxy refuses, and
 * STATE_UNAVAILABLE that names a node without an answer. The proxies asked before that one keep the change.
 */
export async function askEachProxy(
  choice: CommonOptions,
  method: 'GET' | 'POST',
  path: string,
): Promise<readonly ProxyAnswer[]> {
  return withMesh(choice, async (mesh) => {
    const answers: ProxyAnswer[] = [];
    for (const node of chosenNodes(mesh, choice.node)) {
      // Draining proxies are asked too, as they still log.
      for (const socket of await mesh.servers.all('node-proxy', node)) {
        const { status, body } = await ask({ socket, method, path });
        const [first = ''] = body.split('\n');
        if (status === 400) throw new UsageError(first);
        if (status !== 200) throw new MeshError('STATE_UNAVAILABLE', `${node}: ${first}`);
        answers.push({ node, body });
      }
    }
    return answers;
  });
}
