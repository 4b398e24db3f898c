import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PodRecord } from '../../lib/state/pod-record.ts';

/** Makes the record of an enrolled pod in namespace `demo`, with changes. */
export function podRecord(
  changes: Partial<PodRecord> & { readonly uid: string; readonly netns: string | null },
): PodRecord {
  return {
    namespace: 'demo',
    name: changes.uid,
    serviceAccount: 'default',
    node: 'node-1',
    addresses: ['10.9.0.2'],
    labels: { 'istio.io/dataplane-mode': 'ambient' },
    annotations: {},
    namespaceLabels: {},
    hostNetwork: false,
    ...changes,
  };
}

/** Writes `<name>.json` as a pod runtime does. */
export async function writeRecord(dir: string, name: string, record: unknown): Promise<void> {
  const text = typeof record === 'string' ? record : JSON.stringify(record);
  const temporary = join(dir, `.${name}.tmp`);
  await writeFile(temporary, text);
  await rename(temporary, join(dir, `${name}.json`));
}

/** Removes `<name>.json`. */
export async function removeRecord(dir: string, name: string): Promise<void> {
  await rm(join(dir, `${name}.json`));
}
