import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { CertificateManager } from '../../../lib/identity/certificate-manager.ts';
import { tryParseSpiffe } from '../../../lib/net/spiffe.ts';
import type { WorkloadCertificate } from '../../../lib/identity/workload-certificate.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { ControlToThread, PodInfo } from '../../../workers/listener/protocol/control.ts';

/** A listener thread, as far as certificates go. */
export interface CertificateUser {
  readonly number: number;
  /** The pods it serves, by uid. */
  readonly pods: ReadonlyMap<string, { readonly info: PodInfo }>;
  send(message: ControlToThread): void;
}

/** Collaborators of the {@link CertificateDistributor}. */
export interface CertificateDistributorDeps {
  readonly manager: CertificateManager;
  readonly log: Logger;
  threads(): Iterable<CertificateUser>;
}

/**
 * Hands certificates to the threads that serve pods of their identity, has them fetched before they are needed,
 * and lets go of those nobody here uses.
 */
export class CertificateDistributor {
  readonly #deps: CertificateDistributorDeps;
  readonly #unsubscribe: () => void;
  /** Identities of this node's workloads, as the mesh state has them. */
  #local: ReadonlySet<string> = new Set();
  /** Identities that each thread holds. */
  readonly #given = new WeakMap<CertificateUser, Set<string>>();
  #retired = false;
  /** Waits for the end of this turn to let go of what is not used. */
  #letGo: NodeJS.Immediate | null = null;

  constructor(deps: CertificateDistributorDeps) {
    this.#deps = deps;
    this.#unsubscribe = deps.manager.subscribe({
      certificate: (certificate) => this.#publish(certificate),
      unavailable: (identity, error) => this.#tellUnavailable(identity, error),
    });
  }

  /**
   * The identities of this node's mesh workloads: new ones are fetched ahead of any connection. The fetcher may have refused one
   * while it had no workload, so its next attempt is made now.
   */
  setLocal(identities: readonly string[]): void {
    const before = this.#local;
    this.#local = new Set(this.#retired ? [] : identities);
    for (const identity of this.#local) {
      this.#warmUp(identity);
      if (!before.has(identity)) this.#deps.manager.retry(identity);
    }
    this.#forgetUnused();
  }

  /** Identities of this node's mesh workloads that have no valid certificate at this moment. */
  missing(): readonly string[] {
    return [...this.#local].filter(
      (identity) => this.#deps.manager.status(identity).kind !== 'available',
    );
  }

  /** Only what is served here is looked after from now on: nothing new will come. */
  retire(): void {
    this.#retired = true;
    this.setLocal([]);
  }

  /** A connection on the thread waits for the identity, which must be one of the thread's own pods. */
  needed(thread: CertificateUser, identity: string): void {
    const refuse = (error: MeshError): void =>
      thread.send({ type: 'certificate.unavailable', identity, error: error.toWire() });
    if (!serves(thread, identity)) {
      this.#deps.log.warn({ thread: thread.number, identity }, 'certificate.not-served');
      refuse(new MeshError('IDENTITY_REFUSED', `no pod served here has the identity ${identity}`));
      return;
    }
    try {
      const status = this.#deps.manager.want(identity, 'realTime');
      if (status.kind === 'available') this.#give(thread, status.certificate);
      if (status.kind === 'unavailable') refuse(status.error);
    } catch (error) {
      refuse(asMeshError(error, 'IDENTITY_UNAVAILABLE'));
    }
  }

  /** A pod was put on the thread: it gets what is there already, so that its first connection need not ask. */
  podPlaced(thread: CertificateUser): void {
    for (const identity of this.#deps.manager.identities()) {
      if (!serves(thread, identity)) continue;
      const status = this.#deps.manager.status(identity);
      if (status.kind === 'available') this.#give(thread, status.certificate);
    }
  }

  /**
   * Drops identities that neither the mesh state nor a served pod has here, and has threads drop what none of their pods has.
   * After this turn, and once for all calls of it: many pods may end together.
   */
  forgetUnused(): void {
    this.#letGo ??= setImmediate(() => {
      this.#letGo = null;
      this.#forgetUnused();
    });
  }

  close(): void {
    this.#unsubscribe();
    if (this.#letGo !== null) clearImmediate(this.#letGo);
  }

  /** Goes through the pods once, and not once for each identity. */
  #forgetUnused(): void {
    const served = new Set<string>();
    for (const thread of this.#deps.threads()) {
      const own = new Set<string>();
      for (const { info } of thread.pods.values()) own.add(accountOf(info));
      for (const account of own) served.add(account);
      this.#dropUnused(thread, own);
    }
    for (const identity of this.#deps.manager.identities()) {
      if (this.#local.has(identity) || isServed(identity, served)) continue;
      this.#deps.manager.forget(identity);
    }
  }

  #warmUp(identity: string): void {
    try {
      this.#deps.manager.want(identity, 'warmUp');
    } catch (error) {
      this.#deps.log.warn(
        { identity, error: asMeshError(error, 'IDENTITY_UNAVAILABLE').message },
        'certificate.warm-up-refused',
      );
    }
  }

  #publish(certificate: WorkloadCertificate): void {
    for (const thread of this.#deps.threads()) {
      if (serves(thread, certificate.identity)) this.#give(thread, certificate);
    }
  }

  #give(thread: CertificateUser, certificate: WorkloadCertificate): void {
    const { identity } = certificate;
    const given = this.#given.get(thread) ?? new Set();
    this.#given.set(thread, given.add(identity));
    thread.send({ type: 'certificate', certificate });
  }

  /** A key must not outlive the pods that may use it. A pod that drains is still served. */
  #dropUnused(thread: CertificateUser, served: ReadonlySet<string>): void {
    const given = this.#given.get(thread);
    for (const identity of given ?? []) {
      if (isServed(identity, served)) continue;
      given?.delete(identity);
      thread.send({ type: 'certificate.drop', identity });
    }
  }

  #tellUnavailable(identity: string, error: MeshError): void {
    for (const thread of this.#deps.threads()) {
      if (!serves(thread, identity)) continue;
      thread.send({ type: 'certificate.unavailable', identity, error: error.toWire() });
    }
  }
}

/** Whether a pod of the thread has the identity; the trust domain is the mesh's to say. */
function serves(thread: CertificateUser, identity: string): boolean {
  const id = tryParseSpiffe(identity);
  if (id === null) return false;
  for (const { info } of thread.pods.values()) {
    if (info.namespace === id.namespace && info.serviceAccount === id.serviceAccount) return true;
  }
  return false;
}

/** Whether the identity is one of the accounts, as {@link accountOf} names them. */
function isServed(identity: string, accounts: ReadonlySet<string>): boolean {
  const id = tryParseSpiffe(identity);
  return id !== null && accounts.has(accountOf(id));
}

/** No name has a slash. */
function accountOf({
  namespace,
  serviceAccount,
}: Pick<PodInfo, 'namespace' | 'serviceAccount'>): string {
  return `${namespace}/${serviceAccount}`;
}
