import { MessageChannel } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import { programPath } from '../../../lib/files/installation.ts';
import { MAX_INLINE_BYTES, READER_IDLE_MS } from '../limits.ts';
import type { ParsedManifest } from './parse.ts';
import { readManifests } from './read-manifests.ts';
import type { ReadManifests, ReadSummary, ReadTask } from './read-manifests.ts';
import type { ManifestReference } from './references.ts';
import { ManifestRejection } from './rejection.ts';

/** The content of a file. With a refusal it must not be used. */
export interface FileManifests {
  readonly hash: string;
  readonly manifests: readonly ParsedManifest[];
  readonly refusal: ManifestRejection | null;
}

/**
 * Reads manifests: small ones, up to {@link MAX_INLINE_BYTES}, on the main thread, larger ones in a thread that sends the
 * objects in messages of bounded size. The thread exists only while it has work.
 */
export class ManifestReader {
  #pool: Promise<Piscina> | null = null;
  #messages = 0;

  /** Number of messages with objects from the thread. */
  get messages(): number {
    return this.#messages;
  }

  /** The objects of a file and the hash of its text; no objects when the hash is `knownHash`. Bad content is a refusal. */
  async file(path: string, bytes: Uint8Array, knownHash: string | null): Promise<FileManifests> {
    const { hash, items, problems } = await this.#read({ form: 'file', path, bytes, knownHash });
    return {
      hash,
      manifests: items as readonly ParsedManifest[],
      refusal: problems.length > 0 ? new ManifestRejection(problems) : null,
    };
  }

  /** The objects of a request to apply. Throws {@link ManifestRejection}, or MANIFEST_INVALID for a malformed request. */
  async toApply(bytes: Uint8Array): Promise<readonly ParsedManifest[]> {
    return accepted(await this.#read({ form: 'apply', bytes })) as readonly ParsedManifest[];
  }

  /** The names in a request to delete. Throws {@link ManifestRejection}, or MANIFEST_INVALID for a malformed request. */
  async toDelete(bytes: Uint8Array): Promise<readonly ManifestReference[]> {
    return accepted(await this.#read({ form: 'delete', bytes })) as readonly ManifestReference[];
  }

  /** Ends the thread; a read in progress fails with STATE_UNAVAILABLE. */
  async close(): Promise<void> {
    await (await this.#pool)?.destroy();
  }

  async #read(task: ReadTask): Promise<ReadManifests> {
    if (task.bytes.byteLength <= MAX_INLINE_BYTES) return readManifests(task);
    this.#pool ??= startPool();
    const pool = await this.#pool;
    const { port1, port2 } = new MessageChannel();
    const items: ReadManifests['items'][number][] = [];
    port1.on('message', (part: ReadManifests['items']) => {
      this.#messages += 1;
      for (const item of part) items.push(item);
      port1.postMessage(null);
    });
    try {
      const summary = (await pool.run(
        { task, port: port2 },
        // The types name an overload of postMessage that piscina does not accept.
        { transferList: [port2] as never },
      )) as ReadSummary;
      return { ...summary, items };
    } catch (error) {
      throw asMeshError(error, 'STATE_UNAVAILABLE', 'the manifests cannot be read');
    } finally {
      port1.close();
    }
  }
}

/** Loads piscina on first use: most meshes have no large manifest. */
async function startPool(): Promise<Piscina> {
  const { Piscina: Pool } = await import('piscina');
  return new Pool({
    filename: programPath('services/control-plane/manifests/manifests.worker.ts'),
    minThreads: 0,
    maxThreads: 1,
    idleTimeout: READER_IDLE_MS,
  });
}

function accepted({ malformed, problems, items }: ReadManifests): ReadManifests['items'] {
  if (malformed !== null) throw new MeshError('MANIFEST_INVALID', malformed);
  if (problems.length > 0) throw new ManifestRejection(problems);
  return items;
}
