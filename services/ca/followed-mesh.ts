import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import type { Clock } from '../../lib/clock/clock.ts';
import { dnsLabel, labelSelector } from '../../lib/kubernetes/label-fields.ts';
import type { LabelSelector } from '../../lib/kubernetes/label-selector.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { MeshConfigFollower } from '../../lib/mesh-config/follower.ts';
import { parseMeshConfig, trustDomainField } from '../../lib/mesh-config/text.ts';
import type { CaConfig } from './config.ts';

const schema = z.object({
  trustDomain: trustDomainField.optional(),
  trustDomainAliases: z.array(trustDomainField).optional(),
  rootNamespace: dnsLabel.optional(),
  discoverySelectors: z.array(labelSelector).optional(),
});

/** The settings of the mesh that the CA follows. */
export interface CaMesh {
  /** The trust domain of the identities that callers get for themselves, and of new roots. */
  readonly trustDomain: string;
  /** Other trust domains of the mesh, whose identities nodes may still ask for. */
  readonly trustDomainAliases: readonly string[];
  /** Null where the MeshConfig names none. */
  readonly rootNamespace: string | null;
  /** The namespaces that get the roots; without any, all do. */
  readonly discoverySelectors: readonly LabelSelector[];
}

/** Collaborators of a {@link FollowedMesh}. */
export interface FollowedMeshDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>;
}

/**
 * The settings of the mesh as they are now: of the MeshConfig, else of the environment, as the control plane takes them. An
 * unusable MeshConfig is logged and leaves the last one in force. The owner closes it.
 */
export class FollowedMesh {
  readonly #follower: MeshConfigFollower<z.output<typeof schema>>;
  readonly #log: FollowedMeshDeps['log'];
  readonly #listeners = new Set<() => void>();
  #current: CaMesh;

  constructor(
    { trustDomain, meshConfig }: Pick<CaConfig, 'trustDomain' | 'meshConfig'>,
    { clock, log }: FollowedMeshDeps,
  ) {
    this.#log = log;
    this.#current = meshOf({}, trustDomain);
    this.#follower = new MeshConfigFollower({
      path: meshConfig,
      clock,
      log,
      // The control plane names the other fields.
      read: (source, text) => ({
        config: parseMeshConfig(schema, source, text).config,
        ignored: [],
      }),
      changed: (config) => this.#change(meshOf(config ?? {}, trustDomain)),
    });
  }

  get current(): CaMesh {
    return this.#current;
  }

  /** Reads the file, where one is configured. Throws when it cannot be read, or CONFIG_INVALID that names the field. */
  start(): Promise<void> {
    return this.#follower.start();
  }

  /** Takes the text of the ConfigMap, null without one; it has no effect where a file is configured. */
  take(source: string, text: string | null): void {
    this.#follower.take(source, text);
  }

  /** Calls `listener` after every change of the settings; the result ends that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#follower.close();
  }

  #change(next: CaMesh): void {
    const before = this.#current;
    if (isDeepStrictEqual(next, before)) return;
    this.#current = next;
    const { trustDomain: to, trustDomainAliases: aliases } = next;
    const from = before.trustDomain;
    if (from !== to) {
      const effect = aliases.includes(from)
        ? 'identities of the former one are signed for nodes that still ask for them'
        : 'identities of the former one are refused';
      this.#log.warn({ from, to, effect }, 'trust-domain.changed');
    }
    for (const listener of this.#listeners) listener();
  }
}

function meshOf(config: z.output<typeof schema>, trustDomain: string): CaMesh {
  return {
    trustDomain: config.trustDomain ?? trustDomain,
    trustDomainAliases: config.trustDomainAliases ?? [],
    rootNamespace: config.rootNamespace ?? null,
    discoverySelectors: config.discoverySelectors ?? [],
  };
}
