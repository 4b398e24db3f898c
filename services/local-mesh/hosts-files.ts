/** The hosts files of a mesh: one for each namespace, bind-mounted as /etc/hosts of its pods. */
import { constants } from 'node:fs';
import { mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { objectKey } from './objects.ts';
import type { ServiceEntryObject, ServiceObject } from './objects.ts';

/** The cluster domain's default, and the suffix of service names. */
const CLUSTER_DOMAIN = 'cluster.local';
const CLUSTER_SUFFIX = `svc.${CLUSTER_DOMAIN}`;

/** A name every pod can look up, with its addresses. */
export interface HostEntry {
  readonly addresses: readonly string[];
  /** Valid everywhere. */
  readonly names: readonly string[];
  /** Valid in `namespace` only; null for none. */
  readonly shortName: string | null;
  readonly namespace: string;
}

/** The names of a service. Null without addresses, as for a headless service. */
export function serviceEntryOf(service: ServiceObject): HostEntry | null {
  const { name, namespace } = service.metadata;
  const listed = [...service.spec.clusterIPs, service.spec.clusterIP ?? ''];
  const addresses = [...new Set(listed)].filter((ip) => ip !== '' && ip !== 'None');
  if (addresses.length === 0) return null;
  return {
    addresses,
    names: [
      `${name}.${namespace}.${CLUSTER_SUFFIX}`,
      `${name}.${namespace}.svc`,
      `${name}.${namespace}`,
    ],
    shortName: name,
    namespace,
  };
}

/** The names of a service entry with single addresses and without wildcards; null for any other. */
export function externalEntryOf(entry: ServiceEntryObject): HostEntry | null {
  const addresses = entry.spec.addresses.filter((address) => !address.includes('/'));
  const names = entry.spec.hosts.filter((host) => !host.includes('*'));
  if (addresses.length === 0 || names.length === 0) return null;
  return { addresses, names, shortName: null, namespace: entry.metadata.namespace };
}

/** The hosts file of the pods of `namespace`. */
export function renderHosts(namespace: string, entries: Iterable<HostEntry>): string {
  const lines = ['127.0.0.1 localhost', '::1 localhost ip6-localhost ip6-loopback'];
  for (const entry of entries) {
    const short =
      entry.shortName !== null && entry.namespace === namespace ? [entry.shortName] : [];
    for (const address of entry.addresses) {
      lines.push([address, ...entry.names, ...short].join(' '));
    }
  }
  return `${lines.join('\n')}\n`;
}

/**
 * The resolver configuration of the pods of `namespace` on the node with this address. Nothing listens on the address.
 * Queries to it are redirected to the pod's proxy; without a proxy they are refused at once.
 */
export function renderResolvConf(namespace: string, nodeAddress: string): string {
  const domains = `${namespace}.${CLUSTER_SUFFIX} ${CLUSTER_SUFFIX} ${CLUSTER_DOMAIN}`;
  return `nameserver ${nodeAddress}\nsearch ${domains}\noptions ndots:5 timeout:2 attempts:2\n`;
}

/** Keeps the hosts files up to date. */
export class HostsFiles {
  readonly #directory: string;
  readonly #entries = new Map<string, HostEntry>();
  readonly #namespaces = new Set<string>();
  #writes: Promise<void> = Promise.resolve();
  /** True while files are written and after a failed write: they may lack known entries. */
  #stale = false;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The file for pods of `namespace`; it is written when this resolves. */
  async fileFor(namespace: string): Promise<string> {
    const path = join(this.#directory, namespace);
    if (!this.#namespaces.has(namespace)) {
      this.#namespaces.add(namespace);
      try {
        await mkdir(this.#directory, { recursive: true });
        await this.#inTurn(() => this.#write(namespace));
      } catch (error) {
        this.#namespaces.delete(namespace);
        throw error;
      }
    }
    await this.#writes;
    return path;
  }

  /** The resolver configuration of the pods of `namespace` on a node. Namespace names have no dots. */
  async resolvConfFor(
    namespace: string,
    node: { readonly name: string; readonly address: string },
  ): Promise<string> {
    const path = join(this.#directory, `resolv.${namespace}.${node.name}`);
    await this.#inTurn(() => writeFile(path, renderResolvConf(namespace, node.address)));
    return path;
  }

  /** Sets or (null) removes what `key` contributes, and rewrites every file. */
  async set(key: string, entry: HostEntry | null): Promise<void> {
    const wanted = JSON.stringify(entry);
    if (wanted === JSON.stringify(this.#entries.get(key) ?? null) && !this.#stale) return;
    if (entry === null) this.#entries.delete(key);
    else this.#entries.set(key, entry);
    await this.#inTurn(async () => {
      this.#stale = true;
      for (const namespace of this.#namespaces) await this.#write(namespace);
      this.#stale = false;
    });
  }

  /** Runs writes one after another. A failure is reported to its caller and stops no later write. */
  #inTurn(write: () => Promise<void>): Promise<void> {
    const written = this.#writes.then(write);
    this.#writes = written.catch(() => undefined);
    return written;
  }

  /** Keys that contribute entries. */
  keys(): string[] {
    return [...this.#entries.keys()];
  }

  /** Rewrites the file in place, because the pods' bind mounts hold its inode. */
  async #write(namespace: string): Promise<void> {
    const sorted = [...this.#entries]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, entry]) => entry);
    const bytes = Buffer.from(renderHosts(namespace, sorted));
    const { O_RDWR, O_CREAT } = constants;
    await using file = await open(join(this.#directory, namespace), O_RDWR | O_CREAT, 0o644);
    await file.write(bytes, 0, bytes.length, 0);
    await file.truncate(bytes.length);
  }
}

/** The key under which an object contributes. */
export function hostsKey(kind: string, object: Parameters<typeof objectKey>[0]): string {
  return `${kind}:${objectKey(object)}`;
}
