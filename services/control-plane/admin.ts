/** Admin endpoints of the control plane, below `/control-plane`. */
import type { Routes } from '../../lib/http/routes.ts';
import { sendJson } from '../../lib/http/answers.ts';
import type { DeltaServer } from '../../lib/xds/delta-server.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../lib/xds/type-urls.ts';
import type { MeshMap } from './mapping/mesh-map.ts';
import { contentOf } from './mapping/resource.ts';
import type { MappedResource } from './mapping/resource.ts';
import { conditionsOf } from './policy/conditions.ts';
import type { CommittedState } from './store/state.ts';

const shown = (item: MappedResource) => ({
  name: item.name,
  version: item.version,
  content: contentOf(item),
});

/** Registers the routes. */
export function adminRoutes(
  routes: Routes,
  map: MeshMap,
  objects: CommittedState,
  server: DeltaServer,
): void {
  routes.route('GET', '/addresses', (_request, response) => {
    const items = [...map.of(ADDRESS_TYPE).values()];
    sendJson(response, 200, {
      workloads: items.filter((item) => !item.isService).map(shown),
      services: items.filter((item) => item.isService).map(shown),
    });
  });
  routes.route('GET', '/policies', (_request, response) => {
    const policies = [...map.of(AUTHORIZATION_TYPE).values()].map((item) => {
      const [namespace = '', name = ''] = item.name.split('/');
      const source = objects.object('AuthorizationPolicy', namespace, name) ?? null;
      return { ...shown(item), conditions: conditionsOf(source) };
    });
    const unsent = [...objects.ofKind('AuthorizationPolicy')]
      .filter(
        ({ metadata }) =>
          map.get(AUTHORIZATION_TYPE, `${metadata.namespace}/${metadata.name}`) === undefined,
      )
      .map((policy) => ({
        name: `${policy.metadata.namespace}/${policy.metadata.name}`,
        version: null,
        content: null,
        conditions: conditionsOf(policy),
      }));
    sendJson(response, 200, { policies: [...policies, ...unsent] });
  });
  routes.route('GET', '/streams', (_request, response) => {
    sendJson(response, 200, { streams: server.streams() });
  });
}
