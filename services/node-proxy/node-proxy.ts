import { fileURLToPath } from 'node:url';
import type { Actor, ActorContext, Deadline } from '../../lib/actor/actor.ts';
import { assert, present } from '../../lib/errors/assert.ts';
import type { NodeProxyConfig } from './config.ts';
import { ReadinessBlocker } from './readiness-blocker.ts';
import { NodeProxyParts } from './parts.ts';
import { checkPrivileges } from './startup-checks.ts';

/** Where the listener threads' code is. */
const LISTENER_ENTRY = fileURLToPath(
  new URL('../../workers/listener/listener.worker.ts', import.meta.url),
);

/** The actor: builds its parts in order, ends them in reverse. */
export class NodeProxy implements Actor {
  readonly #config: NodeProxyConfig;
  readonly #listenerEntry: string;
  #parts: NodeProxyParts | null = null;

  /** `listenerEntry` is the code of the listener threads. */
  constructor(config: NodeProxyConfig, listenerEntry: string = LISTENER_ENTRY) {
    this.#config = config;
    this.#listenerEntry = listenerEntry;
  }

  async start(context: ActorContext): Promise<void> {
    checkPrivileges(context.log);
    const node = present(context.node, 'a node actor has a node');
    const blockers = {
      state: new ReadinessBlocker(context.readiness, 'state manager'),
      pods: new ReadinessBlocker(context.readiness, 'workload proxy manager'),
      takeover: new ReadinessBlocker(context.readiness, 'takeover'),
      proxy: new ReadinessBlocker(context.readiness, 'proxy'),
    };
    blockers.takeover.set(false);
    const parts = new NodeProxyParts(this.#config, node, this.#listenerEntry, context, blockers);
    this.#parts = parts;
    await parts.start();
    blockers.proxy.set(false);
    context.log.info({ threads: this.#config.threads, ports: parts.ports }, 'node-proxy.listening');
  }

  /** No more from the node agent, then all pods at once (docs/spec/inpod.md §6). */
  async drain(deadline: Deadline): Promise<void> {
    assert(this.#parts !== null, 'an actor drains after it started');
    await this.#parts.drain(deadline);
  }

  async stop(): Promise<void> {
    await this.#parts?.stop();
    this.#parts = null;
  }
}
