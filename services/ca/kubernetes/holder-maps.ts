import { createHash } from 'node:crypto';
import { z } from 'zod';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import type { Holder, HolderStore } from '../holders.ts';
import { CONFIG_MAPS } from './config-maps.ts';

const LABEL = 'weft.dev/ca-holders';

const map = z.looseObject({ data: z.record(z.string(), z.string()).default({}) });
const list = z.looseObject({ items: z.array(map) });
const holderSchema = z.strictObject({
  name: z.string(),
  roots: z.array(z.string()).nullable(),
  untilMs: z.number(),
});

/**
 * The holders in ConfigMaps. Every CA process merges its own holders into them. There are up to 16, by the hash of the
 * holder's name, because an object may have 1 MiB.
 */
export class HolderMaps implements HolderStore {
  readonly #client: KubernetesClient;
  readonly #namespace: string;

  constructor(client: KubernetesClient, namespace: string) {
    this.#client = client;
    this.#namespace = namespace;
  }

  async read(): Promise<readonly Holder[]> {
    const path = resourcePath(CONFIG_MAPS, { namespace: this.#namespace });
    const answer = await this.#client.get(path, { query: { labelSelector: `${LABEL}=true` } });
    try {
      return list
        .parse(answer)
        .items.flatMap(({ data }) => Object.values(data))
        .map((text) => holderSchema.parse(JSON.parse(text)));
    } catch (error) {
      throw new MeshError(
        'STATE_INVALID',
        `the holders of certificates in namespace ${this.#namespace} cannot be read: ${errorText(error)}`,
        { cause: error },
      );
    }
  }

  async merge(changed: readonly Holder[], gone: readonly string[]): Promise<void> {
    const parts = new Map<string, Record<string, string | null>>();
    const put = (name: string, value: string | null): void => {
      const hash = createHash('sha256').update(name).digest('hex').slice(0, 32);
      const part = parts.get(hash.charAt(0)) ?? {};
      parts.set(hash.charAt(0), part);
      part[hash] = value;
    };
    for (const name of gone) put(name, null);
    for (const holder of changed) put(holder.name, JSON.stringify(holder));
    for (const [part, data] of parts) await this.#patch(`weft-ca-holders-${part}`, data);
  }

  async #patch(name: string, data: Readonly<Record<string, string | null>>): Promise<void> {
    const patch = (): Promise<unknown> =>
      this.#client.request({
        method: 'PATCH',
        path: resourcePath(CONFIG_MAPS, { namespace: this.#namespace, name }),
        query: { fieldManager: 'weft-ca' },
        contentType: 'application/merge-patch+json',
        body: { data },
      });
    try {
      await patch();
      return;
    } catch (error) {
      if (!isCode(error, 'KUBERNETES_NOT_FOUND')) throw error;
    }
    try {
      await this.#client.create(resourcePath(CONFIG_MAPS, { namespace: this.#namespace }), {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name, namespace: this.#namespace, labels: { [LABEL]: 'true' } },
      });
    } catch (error) {
      // Another process was faster.
      if (!isCode(error, 'KUBERNETES_CONFLICT')) throw error;
    }
    await patch();
  }
}
