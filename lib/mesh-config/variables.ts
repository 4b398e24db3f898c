import { text } from '../config/fields.ts';

/** The place of the MeshConfig. */
export const meshConfigVariables = {
  WEFT_MESH_CONFIG: {
    schema: text({ optional: true }),
    description:
      'file with a MeshConfig of Istio, followed; key `mesh` of ConfigMap `istio` in the system namespace when unset',
    when: 'the MeshConfig is mounted as a file',
  },
} as const;
