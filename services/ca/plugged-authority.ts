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

/** Revocation lists, which may be missing. */
const CRL_FILE = 'ca-crl.pem';

/** The files of another authority: a folder, or a Secret. */
export interface PluggedFiles {
  /** The place, for messages. */
  readonly where: string;
  /** The contents in the order of the names; null for a file that does not exist. */
  read(names: readonly string[]): Promise<readonly (string | null)[]>;
  /** Calls `changed` when a file may have changed; the result ends that. */
  follow(changed: () => void): () => void;
}

/** Collaborators of a {@link PluggedAuthority}. */
export interface PluggedDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
}

/** The files in the folder where the Secret `cacerts` is mounted. */
export function folderFiles(dir: string, deps: PluggedDeps): PluggedFiles {
  return {
    where: dir,
    read: (names) => Promise.all(names.map((name) => readIfPresent(join(dir, name)))),
    follow(changed) {
      const path = join(dir, ISTIO_FILES[0]);
      const options = { path, debounceMs: FILE_DEBOUNCE_MS, pollMs: FILE_POLL_MS };
      const followed = new FollowedFile(options, deps, changed);
      return () => followed.close();
    },
  };
}

/** Istio's names of the files: certificate, key, chain, roots. */
const ISTIO_FILES = ['ca-cert.pem', 'ca-key.pem', 'cert-chain.pem', 'root-cert.pem'] as const;

/** The names of a Kubernetes TLS secret, as cert-manager writes it. The chain follows the certificate in the same file. */
const TLS_FILES = ['tls.crt', 'tls.key', 'tls.crt', 'ca.crt'] as const;

/**
 * The signing certificate of another authority. It follows the files. An unusable update leaves the last good authority in force. The owner closes it.
 */
export class PluggedAuthority implements AuthoritySource {
  readonly #source: PluggedFiles;
  readonly #deps: PluggedDeps;
  readonly #current: CurrentAuthority;
  readonly #reading = new FreshReading(() => this.#reload());
  #files: AuthorityFiles | null = null;
  #unfollow: (() => void) | null = null;

  constructor(source: PluggedFiles, deps: PluggedDeps) {
    this.#source = source;
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
    const files = await readPlugged(this.#source);
    this.#current.use(parsePlugged(this.#source.where, files, this.#deps.clock.now()));
    this.#files = files;
    // A reading reports its own failures and never rejects.
    this.#unfollow = this.#source.follow(() => void this.#reading.run());
  }

  async close(): Promise<void> {
    this.#unfollow?.();
    this.#unfollow = null;
    this.#current.close();
    await this.#reading.run();
  }

  async #reload(): Promise<void> {
    if (this.#unfollow === null) return;
    try {
      const files = await readPlugged(this.#source);
      const old = present(this.#files, 'the files are read at the start');
      if (isDeepStrictEqual(files, old)) {
        this.#current.keep();
        return;
      }
      const next = parsePlugged(this.#source.where, files, this.#deps.clock.now());
      this.#files = files;
      this.#current.use(next);
    } catch (error) {
      this.#current.refuse(errorText(error));
    }
  }
}

/** Reads the files. Throws CONFIG_INVALID that names the missing ones. */
export async function readPlugged(source: PluggedFiles): Promise<AuthorityFiles> {
  const istio = await source.read(ISTIO_FILES);
  const tls = istio.every((content) => content === null) ? await source.read(TLS_FILES) : istio;
  const asTls = tls !== istio && tls.some((content) => content !== null);
  const [names, found] = asTls ? [TLS_FILES, tls] : [ISTIO_FILES, istio];
  const missing = new Set(names.filter((_, index) => found[index] === null));
  if (missing.size > 0) {
    throw new MeshError('CONFIG_INVALID', `${source.where} lacks ${[...missing].join(', ')}`, {
      detail: { where: source.where },
    });
  }
  const [certificatePem = '', keyPem = '', chainPem = '', rootsPem = ''] = found.map(
    (content) => content ?? '',
  );
  const [crlPem = null] = await source.read([CRL_FILE]);
  return { certificatePem, keyPem, chainPem, rootsPem, crlPem };
}

/** Makes the authority of these files. Throws CONFIG_INVALID that names the place and the fault. */
export function parsePlugged(where: string, files: AuthorityFiles, nowMs: number): Authority {
  try {
    return readAuthority(files, nowMs);
  } catch (error) {
    throw new MeshError(
      'CONFIG_INVALID',
      `the signing certificate in ${where} cannot be used: ${errorText(error)}`,
      { cause: error, detail: { where } },
    );
  }
}
