import type { ActorDefinition } from '../../lib/actor/actor.ts';
import { nodeProxyConfig } from './config.ts';
import type { NodeProxyConfig } from './config.ts';
import { NodeProxy } from './node-proxy.ts';

/** The node's data plane: serves the pods the node agent hands it (ztunnel's role). */
export const definition: ActorDefinition<NodeProxyConfig> = {
  name: 'node-proxy',
  perNode: true,
  config: nodeProxyConfig,
  create: (config) => new NodeProxy(config),
};
