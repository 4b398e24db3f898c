import { createHash } from 'node:crypto';
import * as z from 'zod';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import { mergedHolder } from '../holders.ts';
import type { Holder, HolderStore } from '../holders.ts';
import { HOLDER_MERGE_ATTEMPTS } from '../limits.ts';
import { CONFIG_MAPS } from './config-maps.ts';

const LABEL = 'weft.dev/ca-holders';

const map = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string() }),
  data: z.record(z.string(), z.string()).default({}),
});
type HolderMap = z.infer<typeof map>;
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
    const maps = await this.#all();
    return maps.flatMap(({ data }) => Object.values(data).map((text) => this.#holder(text)));
  }

  async begun(): Promise<boolean> {
    return (await this.#all()).length > 0;
  }

  async begin(): Promise<void> {
    if (await this.begun()) return;
    try {
      await this.#create(mapName('0'));
    } catch (error) {
      // Another process was faster.
      if (!isCode(error, 'KUBERNETES_CONFLICT')) throw error;
    }
  }

  async merge(changed: readonly Holder[], nowMs: number): Promise<void> {
    const parts = new Map<string, Map<string, Holder>>();
    for (const holder of changed) {
      const key = createHash('sha256').update(holder.name).digest('hex').slice(0, 32);
      const part = parts.get(key.charAt(0)) ?? new Map<string, Holder>();
      parts.set(key.charAt(0), part.set(key, holder));
    }
    for (const [part, holders] of parts) await this.#mergePart(part, holders, nowMs);
  }

  /** Merges into what is stored at that moment: other processes know holders and ends that this one does not. */
  async #mergePart(
    part: string,
    changed: ReadonlyMap<string, Holder>,
    nowMs: number,
  ): Promise<void> {
    const name = mapName(part);
    for (let attempt = 1; ; attempt += 1) {
      const [stored] = await this.#maps({ fieldSelector: `metadata.name=${name}` });
      try {
        if (stored !== undefined) {
          await this.#patch(name, stored, this.#rows(stored, changed, nowMs));
          return;
        }
        await this.#create(name);
      } catch (error) {
        // Another process was faster.
        if (!isCode(error, 'KUBERNETES_CONFLICT') || attempt >= HOLDER_MERGE_ATTEMPTS) throw error;
      }
    }
  }

  /** The rows to write by their keys; null removes one. */
  #rows(
    { data }: HolderMap,
    changed: ReadonlyMap<string, Holder>,
    nowMs: number,
  ): Record<string, string | null> {
    const rows: Record<string, string | null> = {};
    const stored = new Map<string, Holder>();
    for (const [key, text] of Object.entries(data)) {
      const holder = this.#holder(text);
      stored.set(key, holder);
      if (holder.untilMs <= nowMs) rows[key] = null;
    }
    for (const [key, holder] of changed) {
      rows[key] = JSON.stringify(mergedHolder(stored.get(key), holder));
    }
    return rows;
  }

  async #patch(
    name: string,
    { metadata: { resourceVersion } }: HolderMap,
    data: Readonly<Record<string, string | null>>,
  ): Promise<void> {
    await this.#client.request({
      method: 'PATCH',
      path: resourcePath(CONFIG_MAPS, { namespace: this.#namespace, name }),
      query: { fieldManager: 'weft-ca' },
      contentType: 'application/merge-patch+json',
      body: { metadata: { resourceVersion }, data },
    });
  }

  async #create(name: string): Promise<void> {
    await this.#client.create(resourcePath(CONFIG_MAPS, { namespace: this.#namespace }), {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name, namespace: this.#namespace, labels: { [LABEL]: 'true' } },
    });
  }

  #all(): Promise<readonly HolderMap[]> {
    return this.#maps({ labelSelector: `${LABEL}=true` });
  }

  async #maps(query: Readonly<Record<string, string>>): Promise<readonly HolderMap[]> {
    const path = resourcePath(CONFIG_MAPS, { namespace: this.#namespace });
    const answer = await this.#client.get(path, { query });
    return this.#parsed(() => list.parse(answer).items);
  }

  #holder(text: string): Holder {
    return this.#parsed(() => holderSchema.parse(JSON.parse(text)));
  }

  /** Throws STATE_INVALID for what cannot be read: a rotation must not go on without its holders. */
  #parsed<T>(parse: () => T): T {
    try {
      return parse();
    } catch (error) {
      throw new MeshError(
        'STATE_INVALID',
        `the holders of certificates in namespace ${this.#namespace} cannot be read: ${errorText(error)}`,
        { cause: error },
      );
    }
  }
}

/** `part` is the first digit of a holder's hash. */
function mapName(part: string): string {
  return `weft-ca-holders-${part}`;
}
