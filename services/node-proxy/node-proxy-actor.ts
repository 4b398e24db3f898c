import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { assert } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { programPath } from '../../lib/files/installation.ts';
import { capabilities, raiseFileLimit } from '../../lib/linux/process.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { Composition } from './composition.ts';
import { nodeProxyConfig } from './config.ts';
import type { NodeProxyConfig } from './config.ts';

/** The entry of the listener threads. */
const LISTENER_ENTRY = programPath('workers/listener/listener.worker.ts');

/** The node's data plane: serves the pods the node agent hands it (ztunnel's role). */
export const definition: ActorDefinition<NodeProxyConfig> = {
  name: 'node-proxy',
  perNode: true,
  config: nodeProxyConfig,
  create: (config) => new NodeProxy(config),
};

/** The actor: makes its parts in order, ends them in reverse. */
export class NodeProxy implements Actor {
  readonly #config: NodeProxyConfig;
  readonly #listenerEntry: string;
  readonly #made = new AsyncDisposableStack();
  #composition: Composition | null = null;

  /** `listenerEntry` is the file that listener threads run. */
  constructor(config: NodeProxyConfig, listenerEntry: string = LISTENER_ENTRY) {
    this.#config = config;
    this.#listenerEntry = listenerEntry;
  }

  async start(context: ActorContext): Promise<void> {
    checkPrivileges(context.log);
    const started = context.readiness.block('proxy');
    const parts = new Composition(this.#config, this.#listenerEntry, context, this.#made);
    this.#composition = parts;
    await parts.start();
    started();
    context.log.info({ threads: this.#config.threads, ports: parts.ports }, 'node-proxy.listening');
  }

  /** Takes no more pods from the node agent, then drains all pods at once (docs/spec/inpod.md §6). */
  async drain(deadline: Deadline): Promise<void> {
    assert(this.#composition !== null, 'an actor drains after it started');
    await this.#composition.drain(deadline);
  }

  stop(): Promise<void> {
    return this.#made.disposeAsync();
  }
}

/**
 * Checks the rights to enter namespaces and to mark sockets (docs/spec/inpod.md §1), and raises the limit of open files as far
 * as it goes. Throws CONFIG_UNSUPPORTED that names the rights that are missing.
 */
function checkPrivileges(log: Logger): void {
  const { netAdmin, netRaw, sysAdmin } = capabilities();
  const missing = [
    ...(sysAdmin ? [] : ["CAP_SYS_ADMIN (to enter the pods' network namespaces)"]),
    ...(netAdmin || netRaw ? [] : ['CAP_NET_ADMIN or CAP_NET_RAW (to mark sockets)']),
  ];
  if (missing.length > 0) {
    throw new MeshError('CONFIG_UNSUPPORTED', `node-proxy lacks ${missing.join(' and ')}`);
  }
  try {
    const { soft, hard } = raiseFileLimit();
    log.debug({ soft, hard }, 'file-limit.raised');
  } catch (error) {
    log.warn({ error: errorText(error) }, 'file-limit.not-raised');
  }
}
