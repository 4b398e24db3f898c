import { join } from 'node:path';
import * as z from 'zod';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { readIfPresent, replaceFile } from '../../lib/files/atomic-file.ts';
import { mergedHolder } from './holders.ts';
import type { Holder, HolderStore } from './holders.ts';

const FILE = 'holders.json';

const schema = z.array(
  z.strictObject({
    name: z.string(),
    roots: z.array(z.string()).nullable(),
    untilMs: z.number(),
  }),
);

/** The holders in a file of the CA's folder. One process writes it. */
export class HolderFile implements HolderStore {
  readonly #path: string;

  constructor(dir: string) {
    this.#path = join(dir, FILE);
  }

  /** Throws STATE_INVALID for a damaged file: a rotation must not go on without its holders. */
  async read(): Promise<readonly Holder[]> {
    const text = await readIfPresent(this.#path);
    if (text === null) return [];
    try {
      return schema.parse(JSON.parse(text));
    } catch (error) {
      throw new MeshError('STATE_INVALID', `${this.#path} cannot be read: ${errorText(error)}`, {
        cause: error,
      });
    }
  }

  async begun(): Promise<boolean> {
    return (await readIfPresent(this.#path)) !== null;
  }

  async begin(): Promise<void> {
    if (!(await this.begun())) await this.merge([], 0);
  }

  async merge(changed: readonly Holder[], nowMs: number): Promise<void> {
    const stored = (await this.read()).filter(({ untilMs }) => untilMs > nowMs);
    const all = new Map(stored.map((holder) => [holder.name, holder]));
    for (const holder of changed) all.set(holder.name, mergedHolder(all.get(holder.name), holder));
    await replaceFile(this.#path, `${JSON.stringify([...all.values()])}\n`, 0o600);
  }
}
