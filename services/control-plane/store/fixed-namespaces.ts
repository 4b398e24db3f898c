import { objectKey } from '../manifests/kinds.ts';
import { admit } from './admission.ts';
import type { AdmissionContext } from './admission.ts';
import type { ObjectStore } from './object-store.ts';

/** Makes the namespaces that are always there, where they are missing. */
export async function ensureNamespaces(
  store: ObjectStore,
  names: readonly string[],
  context: AdmissionContext,
): Promise<void> {
  await store.transact((draft) => {
    for (const name of names) {
      if (draft.get(objectKey('Namespace', '', name)) !== undefined) continue;
      const object = { apiVersion: 'v1', kind: 'Namespace', metadata: { name } } as const;
      draft.put(admit(draft, object, context), null);
    }
  });
}
