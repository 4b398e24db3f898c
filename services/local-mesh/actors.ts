/** The actors of a mesh. Only this file knows all of them, and loads each on demand. */
import type { ActorDefinition } from '../../lib/actor/actor.ts';
import { UsageError } from '../../lib/errors/usage-error.ts';

type AnyDefinition = ActorDefinition<unknown>;

const loaders = {
  'control-plane': async () => (await import('../control-plane/control-plane-actor.ts')).definition,
  ca: async () => (await import('../ca/ca-actor.ts')).definition,
  'xds-ingester': async () => (await import('../xds-ingester/xds-ingester-actor.ts')).definition,
  'policy-evaluator': async () =>
    (await import('../policy-evaluator/policy-evaluator-actor.ts')).definition,
  'cert-fetcher': async () => (await import('../cert-fetcher/cert-fetcher-actor.ts')).definition,
  'node-agent': async () => (await import('../node-agent/node-agent-actor.ts')).definition,
  'node-proxy': async () => (await import('../node-proxy/node-proxy-actor.ts')).definition,
} as const;

/** The name of an actor. */
export type ActorName = keyof typeof loaders;

/** Every actor, in the order in which a mesh starts them. */
export const ACTORS = Object.keys(loaders) as readonly ActorName[];
/** Actors that run once in a mesh. */
export const MESH_ACTORS = ['ca', 'control-plane', 'xds-ingester', 'policy-evaluator'] as const;
/** Actors that run on every node. */
export const NODE_ACTORS = ['node-agent', 'cert-fetcher', 'node-proxy'] as const;
/** The actors that `weft run node` hosts: all that a node with its own Redis needs. */
export const NODE_GROUP = [
  'xds-ingester',
  'policy-evaluator',
  'cert-fetcher',
  'node-agent',
  'node-proxy',
] as const satisfies readonly ActorName[];

/** Whether the text names an actor. */
export function isActorName(text: string): text is ActorName {
  return Object.hasOwn(loaders, text);
}

/** Whether this actor runs on every node. */
export function isNodeActor(actor: ActorName): boolean {
  return NODE_ACTORS.some((name) => name === actor);
}

/** Resolves names and groups to actors, each once, in the given order. Throws UsageError for an unknown name. */
export function expandActors(names: readonly string[]): readonly ActorName[] {
  const actors = names.flatMap((name): readonly ActorName[] => {
    if (name === 'node') return NODE_GROUP;
    if (isActorName(name)) return [name];
    throw new UsageError(
      `unknown actor ${name}; there are ${ACTORS.join(', ')} and the group node`,
    );
  });
  return [...new Set(actors)];
}

/** Loads the module of an actor. */
export function loadActor(name: ActorName): Promise<AnyDefinition> {
  return loaders[name]();
}
