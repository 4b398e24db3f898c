import { z } from 'zod';
import type { Clock } from '../../lib/clock/clock.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { MeshConfigFollower } from '../../lib/mesh-config/follower.ts';
import { parseMeshConfig, trustDomainField } from '../../lib/mesh-config/text.ts';
import type { CaConfig } from './config.ts';

const schema = z.object({ trustDomain: trustDomainField.optional() });

/** Collaborators of a {@link TrustDomain}. */
export interface TrustDomainDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>;
}

/**
 * The trust domain of the identities that are issued now: of the MeshConfig, else of the environment, as the control plane takes
 * it. An unusable MeshConfig is logged and leaves the last one in force. The owner closes it.
 */
export class TrustDomain {
  readonly #follower: MeshConfigFollower<z.output<typeof schema>>;
  #current: string;

  constructor(
    { trustDomain, meshConfig }: Pick<CaConfig, 'trustDomain' | 'meshConfig'>,
    { clock, log }: TrustDomainDeps,
  ) {
    this.#current = trustDomain;
    this.#follower = new MeshConfigFollower({
      path: meshConfig,
      clock,
      log,
      // The control plane names the other fields.
      read: (source, text) => ({
        config: parseMeshConfig(schema, source, text).config,
        ignored: [],
      }),
      changed: (config) => {
        const next = config?.trustDomain ?? trustDomain;
        if (next === this.#current) return;
        log.warn(
          { from: this.#current, to: next, effect: 'identities of the former one are refused' },
          'trust-domain.changed',
        );
        this.#current = next;
      },
    });
  }

  get current(): string {
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

  close(): void {
    this.#follower.close();
  }
}
