import type { Clock } from '../../../lib/clock/clock.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { Reflector } from '../../../lib/kubernetes/reflector.ts';
import type { ReflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MESH_CONFIG_MAP } from '../../../lib/mesh-config/text.ts';
import { CONFIG_MAPS, textOf } from './config-maps.ts';

/** Collaborators of {@link followMeshConfigMap}. */
export interface MeshConfigMapDeps {
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
  readonly metrics: ReflectorMetrics;
}

/** Tells `changed` the text of the MeshConfig after every change, null without one. The caller runs and closes the result. */
export function followMeshConfigMap(
  namespace: string,
  deps: MeshConfigMapDeps,
  changed: (text: string | null) => void,
): Reflector<{ readonly text: string }> {
  const held = new Set<string>();
  return new Reflector(
    {
      resource: CONFIG_MAPS,
      kind: 'ConfigMap',
      namespace,
      fieldSelector: `metadata.name=${MESH_CONFIG_MAP.name}`,
      reduce: (object) => ({ text: textOf(object, MESH_CONFIG_MAP.key) }),
      sink: {
        keys: () => held,
        apply: (changes) => {
          for (const { key, object } of changes) {
            if (object === null) held.delete(key);
            else held.add(key);
            changed(object?.text ?? null);
          }
        },
      },
    },
    deps,
  );
}
