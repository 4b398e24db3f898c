/** One Secret of the CA. */
import * as z from 'zod';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { Reflector } from '../../../lib/kubernetes/reflector.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import type { ResourceType } from '../../../lib/kubernetes/resource.ts';
import { ifPresent } from '../../../lib/kubernetes/status.ts';
import type { Logger } from '../../../lib/log/logger.ts';

const SECRETS: ResourceType = { group: '', versions: ['v1'], plural: 'secrets', namespaced: true };

/** Collaborators of a {@link SecretObject}. */
export interface SecretDeps {
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
}

const secret = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string() }),
  data: z.record(z.string(), z.string()).default({}),
});

/** The content of a Secret. */
export interface SecretContent {
  readonly files: Readonly<Record<string, string>>;
  readonly version: string;
}

/** Reads, writes and follows one Secret. */
export class SecretObject {
  readonly where: string;
  readonly #namespace: string;
  readonly #name: string;
  readonly #deps: SecretDeps;

  constructor(namespace: string, name: string, deps: SecretDeps) {
    this.where = `Secret ${namespace}/${name}`;
    this.#namespace = namespace;
    this.#name = name;
    this.#deps = deps;
  }

  /** Null when there is none. Throws the API server's failures. */
  async read(): Promise<SecretContent | null> {
    const found = await ifPresent(this.#deps.client.get(this.#path()));
    if (found === null) return null;
    const { metadata, data } = secret.parse(found);
    const files = Object.entries(data).map(([name, value]): [string, string] => [
      name,
      Buffer.from(value, 'base64').toString('utf8'),
    ]);
    return { files: Object.fromEntries(files), version: metadata.resourceVersion };
  }

  /** Creates it. Throws KUBERNETES_CONFLICT when it exists. */
  async create(type: string, files: Readonly<Record<string, string>>): Promise<void> {
    const path = resourcePath(SECRETS, { namespace: this.#namespace });
    await this.#deps.client.create(path, {
      apiVersion: 'v1',
      kind: 'Secret',
      type,
      metadata: { name: this.#name, namespace: this.#namespace },
      stringData: files,
    });
  }

  /** Sets these files; null takes one away. Throws KUBERNETES_CONFLICT when the version is not `version`. */
  async patch(files: Readonly<Record<string, string | null>>, version: string): Promise<void> {
    const data = Object.entries(files).map(([name, text]): [string, string | null] => [
      name,
      text === null ? null : Buffer.from(text).toString('base64'),
    ]);
    await this.#deps.client.request({
      method: 'PATCH',
      path: this.#path(),
      query: { fieldManager: 'weft-ca' },
      contentType: 'application/merge-patch+json',
      body: { metadata: { resourceVersion: version }, data: Object.fromEntries(data) },
    });
  }

  /** Calls `changed` when it may have changed; the result ends that. */
  follow(changed: () => void): () => void {
    const held = new Set<string>();
    const reflector = new Reflector<true>(
      {
        resource: SECRETS,
        kind: 'Secret',
        namespace: this.#namespace,
        fieldSelector: `metadata.name=${this.#name}`,
        reduce: () => true,
        sink: {
          keys: () => held,
          apply: (changes) => {
            for (const { key, object } of changes) {
              if (object === null) held.delete(key);
              else held.add(key);
            }
            changed();
          },
        },
      },
      this.#deps,
    );
    void reflector.run();
    return () => void reflector.close();
  }

  #path(): string {
    return resourcePath(SECRETS, { namespace: this.#namespace, name: this.#name });
  }
}
