import * as z from 'zod';
import type { ConfigValues } from '../../../lib/config/define-config.ts';
import type { Environment } from '../../../lib/config/env.ts';
import { text } from '../../../lib/config/fields.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';

/** A local configuration file, or its text. */
export type LocalSource = { readonly path: string } | { readonly text: string };

/** Variables for a mesh state that comes from a file (docs/spec/control.md §4). */
export const localStateVariables = {
  XDS_ADDRESS: {
    // Empty and absent differ here (docs/spec/control.md §1).
    schema: z
      .string()
      .optional()
      .transform((value) => (value === '' ? ('none' as const) : null)),
    description:
      'set and empty: there is no control plane, and LOCAL_XDS_PATH or LOCAL_XDS is the whole mesh state; else xds-ingester reads them',
  },
  LOCAL_XDS_PATH: {
    schema: text({ optional: true }),
    description: 'file with workloads, services and policies, followed; where XDS_ADDRESS is empty',
  },
  LOCAL_XDS: {
    schema: text({ optional: true }),
    description: 'the same as a text instead of a file',
  },
} as const;

/** Returns the local source of the mesh state; null = Redis. Throws CONFIG_INVALID when two sources are set. */
export function localSource(values: ConfigValues<typeof localStateVariables>): LocalSource | null {
  const { LOCAL_XDS_PATH: path, LOCAL_XDS: inline } = values;
  if (path !== null && inline !== null) {
    throw new MeshError('CONFIG_INVALID', 'LOCAL_XDS_PATH and LOCAL_XDS must not both be set');
  }
  if (values.XDS_ADDRESS === null) return null;
  if (path !== null) return { path };
  return inline === null ? null : { text: inline };
}

/** Throws CONFIG_INVALID when there is a local file but no Redis, and says why Redis is needed. */
export function requireSigning(environment: Environment): void {
  const isSet = (name: string): boolean => (environment[name] ?? '') !== '';
  if (isSet('REDIS_URL') || !(isSet('LOCAL_XDS_PATH') || isSet('LOCAL_XDS'))) return;
  throw new MeshError(
    'CONFIG_INVALID',
    'REDIS_URL is required, also with LOCAL_XDS_PATH or LOCAL_XDS: certificates are signed by way of Redis',
  );
}
