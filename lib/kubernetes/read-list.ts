import type { KubernetesClient } from './client.ts';
import { listItems } from './json-stream.ts';

/** Reads a list object by object, and keeps what `pick` makes of each; null leaves it out. */
export async function readList<T>(
  client: KubernetesClient,
  path: string,
  pick: (object: unknown) => T | null,
  query: Readonly<Record<string, string>> = {},
): Promise<readonly T[]> {
  const kept: T[] = [];
  for await (const object of listItems(await client.stream({ path, query }), path)) {
    const picked = pick(object);
    if (picked !== null) kept.push(picked);
  }
  return kept;
}
