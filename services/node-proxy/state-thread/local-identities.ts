import { formatSpiffe } from '../../../lib/net/spiffe.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { Workload } from '../../../lib/state/model.ts';
import type { AddressResource } from '../../../lib/state/packed-store.ts';
import type { WorkloadName } from './protocol.ts';

/**
 * Counts workloads, and the identities of this node's mesh workloads, as rows come and go. The process fetches certificates of
 * these identities before a connection needs them (docs/spec/control.md §5.2).
 */
export class LocalIdentities {
  readonly #node: string;
  readonly #only: WorkloadName | null;
  readonly #users = new Map<string, number>();
  #workloads = 0;
  #touched = false;
  #reported = '';

  /** With an empty `node` every workload is local. `only` names the one workload of dedicated mode. */
  constructor(node: string, only: WorkloadName | null) {
    this.#node = node;
    this.#only = only;
  }

  /** Number of workloads, local or not. */
  get workloads(): number {
    return this.#workloads;
  }

  /** Returns all local identities if they changed since the last call, else null. */
  takeChanged(): readonly string[] | null {
    if (!this.#touched) return null;
    this.#touched = false;
    const identities = [...this.#users.keys()].sort();
    const text = identities.join(' ');
    if (text === this.#reported) return null;
    this.#reported = text;
    return identities;
  }

  /** Counts the contents of a row: -1 before it changes, 1 after. */
  count(resource: AddressResource | undefined, difference: 1 | -1): void {
    if (resource?.kind !== 'workload') return;
    this.#workloads += difference;
    const identity = this.#identity(resource.workload);
    if (identity === null) return;
    const users = (this.#users.get(identity) ?? 0) + difference;
    if (users > 0) this.#users.set(identity, users);
    else this.#users.delete(identity);
    if (users === 0 || (users === 1 && difference === 1)) this.#touched = true;
  }

  #identity(workload: Workload): string | null {
    if (this.#node !== '' && workload.node !== this.#node) return null;
    if (this.#only !== null && !isNamed(workload, this.#only)) return null;
    if (workload.tunnelProtocol !== 'HBONE' && !workload.nativeTunnel) return null;
    try {
      return formatSpiffe(workload);
    } catch (error) {
      // SPIFFE cannot express this service account, so there is no certificate to fetch. Its connections report the error.
      if (error instanceof MeshError && error.code === 'IDENTITY_INVALID') return null;
      throw error;
    }
  }
}

function isNamed(workload: Workload, { namespace, name, serviceAccount }: WorkloadName): boolean {
  return (
    workload.name === name &&
    workload.namespace === namespace &&
    workload.serviceAccount === serviceAccount
  );
}
