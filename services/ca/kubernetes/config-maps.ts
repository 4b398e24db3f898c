/** One text as a ConfigMap in the namespaces of the mesh. */
import type { Clock } from '../../../lib/clock/clock.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { Reflector } from '../../../lib/kubernetes/reflector.ts';
import type { ReflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { NAMESPACES } from '../../../lib/kubernetes/resources.ts';
import type { ResourceType } from '../../../lib/kubernetes/resource.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import { ifPresent, isCode } from '../../../lib/kubernetes/status.ts';
import { WriteQueue } from '../../../lib/kubernetes/write-queue.ts';
import type { Logger } from '../../../lib/log/logger.ts';

/** The resource. */
export const CONFIG_MAPS: ResourceType = {
  group: '',
  versions: ['v1'],
  plural: 'configmaps',
  namespaced: true,
};

/** The manager of the fields that the CA writes. */
const FIELD_MANAGER = 'weft-ca';

/** A ConfigMap to keep in the namespaces of the mesh. */
export interface SpreadOptions {
  readonly name: string;
  readonly key: string;
  /** True for the namespaces that get it now. In others it stays as it is. */
  readonly selects: (namespace: string, labels: Labels) => boolean;
  /** The text as it should be now; null while there is none, and then nothing is written. */
  readonly content: () => string | null;
}

/** Collaborators of {@link SpreadText}. */
export interface SpreadDeps {
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
  readonly reflectors: ReflectorMetrics;
}

/**
 * Keeps a text in a ConfigMap of every selected namespace. It writes only what differs, and never a field of another manager: such a
 * ConfigMap belongs to a running istiod. The owner closes it.
 */
export class SpreadText {
  readonly #options: SpreadOptions;
  readonly #deps: SpreadDeps;
  readonly #queue: WriteQueue;
  /** The labels of each namespace. */
  readonly #namespaces = new Map<string, Labels>();
  /** The text that each namespace has, by `namespace/name`. */
  readonly #texts = new Map<string, string>();
  /** Namespaces whose text another manager owns, with the text that was refused. */
  readonly #foreign = new Map<string, string>();
  readonly #reflectors: readonly Reflector<unknown>[];
  #ready = false;
  #closed = false;

  constructor(options: SpreadOptions, deps: SpreadDeps) {
    this.#options = options;
    this.#deps = deps;
    const { clock, log } = deps;
    this.#queue = new WriteQueue({ clock, log });
    this.#reflectors = [this.#followNamespaces(), this.#followTexts()];
  }

  /** The namespaces whose ConfigMap another manager owns with another text, sorted. */
  get foreign(): readonly string[] {
    return [...this.#foreign.keys()].sort();
  }

  /** Follows the namespaces and writes until it is closed. */
  async run(): Promise<void> {
    const running = Promise.all(this.#reflectors.map((reflector) => reflector.run()));
    const synced = Promise.all(this.#reflectors.map((reflector) => reflector.synced()));
    // A reflector that is closed before its first list is complete ends, and is never synced.
    await Promise.race([synced, running]);
    if (!this.#closed) {
      this.#ready = true;
      this.refresh();
    }
    await running;
  }

  /** Compares every namespace with the text as it should be now. */
  refresh(): void {
    for (const namespace of this.#namespaces.keys()) this.#check(namespace);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#reflectors.map((reflector) => reflector.close()));
    await this.#queue.close();
  }

  #check(namespace: string): void {
    const wanted = this.#options.content();
    if (!this.#ready || wanted === null || !this.#namespaces.has(namespace)) return;
    const held = this.#texts.get(this.#key(namespace));
    if (held === wanted || !this.#isSelected(namespace)) {
      this.#foreign.delete(namespace);
      return;
    }
    // Only a change of either text is worth another attempt.
    if (this.#foreign.get(namespace) === `${held ?? ''}\n${wanted}`) return;
    this.#queue.offer(namespace, (signal) => this.#write(namespace, signal));
  }

  async #write(namespace: string, signal: AbortSignal): Promise<void> {
    const { name, key } = this.#options;
    const wanted = this.#options.content();
    const held = this.#texts.get(this.#key(namespace));
    if (wanted === null || held === wanted || !this.#isSelected(namespace)) return;
    try {
      await this.#deps.client.apply(
        resourcePath(CONFIG_MAPS, { namespace, name }),
        {
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { name, namespace, labels: { 'istio.io/config': 'true' } },
          data: { [key]: wanted },
        },
        { fieldManager: FIELD_MANAGER, signal },
      );
      this.#foreign.delete(namespace);
    } catch (error) {
      if (!isCode(error, 'KUBERNETES_CONFLICT')) throw error;
      this.#foreign.set(namespace, `${held ?? ''}\n${wanted}`);
      this.#deps.log.warn({ namespace, name, problem: error.message }, 'config-map.foreign');
    }
  }

  #isSelected(namespace: string): boolean {
    const labels = this.#namespaces.get(namespace);
    return labels !== undefined && this.#options.selects(namespace, labels);
  }

  #key(namespace: string): string {
    return `${namespace}/${this.#options.name}`;
  }

  #followNamespaces(): Reflector<Labels> {
    return new Reflector<Labels>(
      {
        resource: NAMESPACES,
        kind: 'Namespace',
        // Nothing can be created in a namespace that ends.
        reduce: (object) => (isEnding(object) ? null : labelsOf(object)),
        sink: {
          keys: () => this.#namespaces.keys(),
          apply: (changes) => {
            for (const { key, object } of changes) {
              if (object === null) this.#forget(key);
              else this.#namespaces.set(key, object);
            }
            for (const { key } of changes) this.#check(key);
          },
        },
      },
      { ...this.#deps, metrics: this.#deps.reflectors },
    );
  }

  #followTexts(): Reflector<unknown> {
    return new Reflector<unknown>(
      {
        resource: CONFIG_MAPS,
        kind: 'ConfigMap',
        fieldSelector: `metadata.name=${this.#options.name}`,
        reduce: (object) => textOf(object, this.#options.key),
        sink: {
          keys: () => this.#texts.keys(),
          apply: (changes) => {
            for (const { key, object } of changes) {
              if (typeof object === 'string') this.#texts.set(key, object);
              else this.#texts.delete(key);
              this.#check(key.slice(0, key.indexOf('/')));
            }
          },
        },
      },
      { ...this.#deps, metrics: this.#deps.reflectors },
    );
  }

  #forget(namespace: string): void {
    this.#namespaces.delete(namespace);
    this.#foreign.delete(namespace);
  }
}

function labelsOf({ metadata }: Readonly<Record<string, unknown>>): Labels {
  return (metadata as { readonly labels?: Labels } | undefined)?.labels ?? {};
}

function isEnding({ status }: Readonly<Record<string, unknown>>): boolean {
  return (status as { readonly phase?: unknown } | undefined)?.phase === 'Terminating';
}

/** Reads the text under a key of a ConfigMap; null without the ConfigMap, empty without the key. Throws the API server's failures. */
export async function readText(
  client: KubernetesClient,
  namespace: string,
  { name, key }: { readonly name: string; readonly key: string },
): Promise<string | null> {
  const found = await ifPresent(client.get(resourcePath(CONFIG_MAPS, { namespace, name })));
  return found === null ? null : textOf(found as Readonly<Record<string, unknown>>, key);
}

/** The text under a key; empty when the ConfigMap has none. */
export function textOf({ data }: Readonly<Record<string, unknown>>, key: string): string {
  const text = (data as Readonly<Record<string, unknown>> | undefined)?.[key];
  return typeof text === 'string' ? text : '';
}
