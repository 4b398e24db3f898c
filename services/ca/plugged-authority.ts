import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../lib/clock/clock.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { readIfPresent } from '../../lib/files/atomic-file.ts';
import { FollowedFile } from '../../lib/files/followed-file.ts';
import { FreshReading } from '../../lib/files/fresh-reading.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { readAuthority } from './authority.ts';
import type { Authority, AuthorityFiles, AuthoritySource } from './authority.ts';
import { CurrentAuthority } from './current-authority.ts';
import { FILE_DEBOUNCE_MS, FILE_POLL_MS } from './limits.ts';

/** Collaborators of a {@link PluggedAuthority}. */
export interface PluggedDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
}

/** Istio's names of the files: certificate, key, chain, roots. */
const ISTIO_FILES = ['ca-cert.pem', 'ca-key.pem', 'cert-chain.pem', 'root-cert.pem'] as const;

/** The names of a Kubernetes TLS secret, as cert-manager writes it. The chain follows the certificate in the same file. */
const TLS_FILES = ['tls.crt', 'tls.key', 'tls.crt', 'ca.crt'] as const;

/**
 * The signing certificate of another authority, from the folder where the Secret `cacerts` is mounted. It follows the
 * files. An unusable update leaves the last good authority in force. The owner closes it.
 */
export class PluggedAuthority implements AuthoritySource {
  readonly #dir: string;
  readonly #deps: PluggedDeps;
  readonly #current: CurrentAuthority;
  readonly #reading = new FreshReading(() => this.#reload());
  #files: AuthorityFiles | null = null;
  #followed: FollowedFile | null = null;

  constructor(dir: string, deps: PluggedDeps) {
    this.#dir = dir;
    this.#deps = deps;
    this.#current = new CurrentAuthority(deps.log);
  }

  get current(): Authority {
    return this.#current.value;
  }

  get problem(): string | null {
    return this.#current.problem;
  }

  onChange(listener: (authority: Authority) => void): () => void {
    return this.#current.onChange(listener);
  }

  /** Throws CONFIG_INVALID that names the folder and the fault: a missing file, files that do not match, an expired certificate. */
  async start(): Promise<void> {
    const files = await readPlugged(this.#dir);
    this.#current.use(parsePlugged(this.#dir, files, this.#deps.clock.now()));
    this.#files = files;
    this.#followed = new FollowedFile(
      { path: join(this.#dir, ISTIO_FILES[0]), debounceMs: FILE_DEBOUNCE_MS, pollMs: FILE_POLL_MS },
      this.#deps,
      // A reading reports its own failures and never rejects.
      () => void this.#reading.run(),
    );
  }

  async close(): Promise<void> {
    this.#followed?.close();
    this.#followed = null;
    this.#current.close();
    await this.#reading.run();
  }

  async #reload(): Promise<void> {
    if (this.#followed === null) return;
    try {
      const files = await readPlugged(this.#dir);
      const old = present(this.#files, 'the files are read at the start');
      if (isDeepStrictEqual(files, old)) {
        this.#current.keep();
        return;
      }
      const next = parsePlugged(this.#dir, files, this.#deps.clock.now());
      this.#files = files;
      this.#current.use(next);
    } catch (error) {
      this.#current.refuse(errorText(error));
    }
  }
}

/** Reads the files of a folder. Throws CONFIG_INVALID that names the missing ones. */
export async function readPlugged(dir: string): Promise<AuthorityFiles> {
  const istio = await contents(dir, ISTIO_FILES);
  const tls = istio.every((content) => content === null) ? await contents(dir, TLS_FILES) : istio;
  const asTls = tls !== istio && tls.some((content) => content !== null);
  const [names, found] = asTls ? [TLS_FILES, tls] : [ISTIO_FILES, istio];
  const missing = new Set(names.filter((_, index) => found[index] === null));
  if (missing.size > 0) {
    throw new MeshError('CONFIG_INVALID', `${dir} lacks ${[...missing].join(', ')}`, {
      detail: { dir },
    });
  }
  const [certificatePem = '', keyPem = '', chainPem = '', rootsPem = ''] = found.map(
    (content) => content ?? '',
  );
  return { certificatePem, keyPem, chainPem, rootsPem };
}

/** Makes the authority of a folder's files. Throws CONFIG_INVALID that names the folder and the fault. */
export function parsePlugged(dir: string, files: AuthorityFiles, nowMs: number): Authority {
  try {
    return readAuthority(files, nowMs);
  } catch (error) {
    throw new MeshError(
      'CONFIG_INVALID',
      `the signing certificate in ${dir} cannot be used: ${errorText(error)}`,
      { cause: error, detail: { dir } },
    );
  }
}

function contents(dir: string, names: readonly string[]): Promise<(string | null)[]> {
  return Promise.all(names.map((name) => readIfPresent(join(dir, name))));
}
