/** The EndpointSlices of Services, and the pods that they name. */
import { isDeepStrictEqual } from 'node:util';
import type { Index, Keyed } from '../../../lib/derived/keyed.ts';
import { Mapped } from '../../../lib/derived/mapped.ts';
import { Memo } from '../../../lib/derived/memo.ts';
import type { Reading } from '../../../lib/derived/reading.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import type { Pod } from '../manifests/kinds.ts';
import { SERVICE_LABEL, sliceEndpoints } from './endpoint-slice.ts';
import type { SliceEndpoints } from './endpoint-slice.ts';
import type { MeshBase } from './mesh-base.ts';
import type { MeshServices } from './mesh-services.ts';
import type { ServiceTarget } from './service-target.ts';

const NONE: readonly ServiceTarget[] = [];

/** The endpoints of slices that pods and selectors do not tell. */
export class ServiceSlices {
  readonly endpoints: Keyed<SliceEndpoints>;
  readonly #byPod: Index<SliceEndpoints>;
  /** True for a namespace with a slice that names pods, so that the pods of other namespaces need not look. */
  readonly #namesPods: Memo<boolean>;

  constructor(base: MeshBase, services: MeshServices) {
    const { graph, objects } = base;
    this.endpoints = new Mapped(
      graph,
      objects.EndpointSlice,
      (reading, slice) => {
        const name = slice.metadata.labels?.[SERVICE_LABEL];
        if (name === undefined) return undefined;
        const target = reading.get(services.targets, `${namespaceOf(slice)}/${name}`);
        return target === undefined ? undefined : sliceEndpoints(slice, target);
      },
      isDeepStrictEqual,
    );
    this.#byPod = this.endpoints.index(({ namespace, pods }) =>
      pods.map(({ name }) => `${namespace}/${name}`),
    );
    const byNamespace = this.endpoints.index(({ namespace, pods }) =>
      pods.length === 0 ? [] : [namespace],
    );
    this.#namesPods = new Memo(
      graph,
      (reading, namespace) => reading.list(byNamespace, namespace).length > 0,
    );
  }

  /** The Services without a selector whose slices name the pod. */
  naming(reading: Reading, pod: Pod): readonly ServiceTarget[] {
    const namespace = namespaceOf(pod);
    if (reading.get(this.#namesPods, namespace) !== true) return NONE;
    const { name, uid } = pod.metadata;
    return reading
      .list(this.#byPod, `${namespace}/${name}`)
      .filter(({ pods }) => pods.some((named) => named.name === name && named.uid === uid))
      .map(({ target }) => target);
  }
}
