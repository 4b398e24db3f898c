/** Which claim to a host counts (docs/spec/istiod-ambient.md §1.5). */
import type { Graph } from '../../../lib/derived/graph.ts';
import type { Keyed } from '../../../lib/derived/keyed.ts';
import { Memo } from '../../../lib/derived/memo.ts';
import type { Reading } from '../../../lib/derived/reading.ts';
import { byClaim } from './service-target.ts';
import type { ServiceTarget } from './service-target.ts';

/** Owner of a host that a Service holds; no name of an object contains this sign. */
const KUBERNETES = '*';

/** The claims of Services and ServiceEntries to hosts. */
export class HostClaims {
  /** The owner of the claim that counts in its namespace, by `namespace/hostname`. */
  readonly #owners: Memo<string>;
  /** The namespace whose claim counts mesh-wide, by host name. */
  readonly #canonical: Memo<string>;

  constructor(
    graph: Graph,
    services: Keyed<ServiceTarget>,
    entries: Keyed<readonly ServiceTarget[]>,
  ) {
    const byKey = services.index(({ key }) => [key]);
    const byName = services.index(({ service }) => [service.hostname]);
    const entriesByKey = entries.index((list) => list.map(({ key }) => key));
    const entriesByName = entries.index((list) => list.map(({ service }) => service.hostname));
    this.#owners = new Memo(graph, (reading, key) => {
      if (reading.list(byKey, key).length > 0) return KUBERNETES;
      const claims = reading.list(entriesByKey, key).flat();
      return claims.filter((claim) => claim.key === key).toSorted(byClaim)[0]?.owner ?? '';
    });
    this.#canonical = new Memo(graph, (reading, hostname) => {
      const kubernetes = reading.list(byName, hostname)[0];
      if (kubernetes !== undefined) return kubernetes.service.namespace;
      const claims = reading.list(entriesByName, hostname).flat();
      const open = claims.filter(
        ({ service }) => service.hostname === hostname && service.visibility === 'PUBLIC',
      );
      return open.toSorted(byClaim)[0]?.service.namespace ?? '';
    });
  }

  /** True when the claim of an entry's target counts in its namespace. */
  isHeld(reading: Reading, target: ServiceTarget): boolean {
    return reading.get(this.#owners, target.key) === target.owner;
  }

  /** True when the claim of an entry's target counts mesh-wide. */
  isCanonical(reading: Reading, { service }: ServiceTarget): boolean {
    return reading.get(this.#canonical, service.hostname) === service.namespace;
  }
}
