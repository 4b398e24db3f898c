/** Keeps the roots in the webhook's configuration, by which the API server knows the control plane. */
import * as z from 'zod';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import type { ResourceType } from '../../../lib/kubernetes/resource.ts';
import { Reflector } from '../../../lib/kubernetes/reflector.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { WriteQueue } from '../../../lib/kubernetes/write-queue.ts';
import type { Logger } from '../../../lib/log/logger.ts';

/** The resource. */
export const WEBHOOKS: ResourceType = {
  group: 'admissionregistration.k8s.io',
  versions: ['v1'],
  plural: 'validatingwebhookconfigurations',
  namespaced: false,
};

const FIELD_MANAGER = 'weft-webhook';
/** Roots change rarely, and the old ones stay valid for long. */
const ROOTS_POLL_MS = 30_000;

const configurationSchema = z.looseObject({
  webhooks: z
    .array(
      z.looseObject({
        name: z.string(),
        clientConfig: z.looseObject({ caBundle: z.string().optional() }),
      }),
    )
    .default([]),
});
type Configuration = z.infer<typeof configurationSchema>;

/** The name of the configuration that belongs to a root namespace. */
export function webhookName(rootNamespace: string): string {
  return `weft-validator-${rootNamespace}`;
}

/** Collaborators of a {@link WebhookBundle}. */
export interface WebhookBundleDeps {
  readonly client: KubernetesClient;
  readonly writes: WriteQueue;
  readonly clock: Clock;
  readonly log: Logger;
  /** The current roots, PEM. */
  readonly roots: () => Promise<string>;
}

/** Follows one configuration and writes the roots into it where they differ. A configuration that does not exist is not made. */
export class WebhookBundle {
  readonly #name: string;
  readonly #deps: WebhookBundleDeps;
  #current: Configuration | null = null;

  constructor(name: string, deps: WebhookBundleDeps) {
    this.#name = name;
    this.#deps = deps;
  }

  /** Runs until the result is called. */
  start(): () => Promise<void> {
    const { client, clock, log } = this.#deps;
    const reflector = new Reflector<Configuration>(
      {
        resource: WEBHOOKS,
        kind: 'ValidatingWebhookConfiguration',
        fieldSelector: `metadata.name=${this.#name}`,
        reduce: (object) => configurationSchema.parse(object),
        sink: {
          keys: () => (this.#current === null ? [] : [this.#name]),
          apply: (changes) => {
            this.#current = changes.at(-1)?.object ?? null;
            this.#offer();
          },
        },
      },
      { client, clock, log },
    );
    void reflector.run();
    const timer = clock.every(ROOTS_POLL_MS, () => this.#offer());
    return async () => {
      timer.cancel();
      await reflector.close();
    };
  }

  #offer(): void {
    if (this.#current === null) return;
    this.#deps.writes.offer(`webhook ${this.#name}`, (signal) => this.#write(signal));
  }

  async #write(signal: AbortSignal): Promise<void> {
    const { client, roots, log } = this.#deps;
    const bundle = Buffer.from(await this.#readRoots(roots)).toString('base64');
    const stale = (this.#current?.webhooks ?? []).filter(
      ({ clientConfig }) => clientConfig.caBundle !== bundle,
    );
    if (stale.length === 0) return;
    await client.apply(
      resourcePath(WEBHOOKS, { name: this.#name }),
      {
        apiVersion: 'admissionregistration.k8s.io/v1',
        kind: 'ValidatingWebhookConfiguration',
        metadata: { name: this.#name },
        // A manager's fields are replaced at once, so all webhooks are named.
        webhooks: (this.#current?.webhooks ?? []).map(({ name }) => ({
          name,
          clientConfig: { caBundle: bundle },
        })),
      },
      { fieldManager: FIELD_MANAGER, force: true, signal },
    );
    log.info({ configuration: this.#name }, 'webhook.roots-written');
  }

  /** A root file that is missing for a moment is a failure that the queue tries again. */
  async #readRoots(roots: () => Promise<string>): Promise<string> {
    try {
      return await roots();
    } catch (error) {
      throw new MeshError('STATE_UNAVAILABLE', `cannot read the roots: ${String(error)}`, {
        cause: error,
      });
    }
  }
}
