import { join } from 'node:path';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { readIfPresent } from '../../lib/files/atomic-file.ts';
import { FollowedFile } from '../../lib/files/followed-file.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { readAuthority } from './authority.ts';
import type { Authority, AuthorityFiles } from './authority.ts';
import { FollowedAuthority, shareRoot } from './followed-authority.ts';
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
 * The signing certificate of another authority. A change is refused when its roots share none with those in force: nodes would
 * refuse each other until all of them have read the new roots.
 */
export class PluggedAuthority extends FollowedAuthority<AuthorityFiles> {
  readonly #source: PluggedFiles;
  readonly #clock: Clock;
  readonly #former: Authority | null;

  /** `former` is the authority that a first reading replaces; null when there was none. */
  constructor(source: PluggedFiles, { clock, log }: PluggedDeps, former: Authority | null = null) {
    super(log);
    this.#source = source;
    this.#clock = clock;
    this.#former = former;
  }

  get where(): string {
    return this.#source.where;
  }

  /** Throws CONFIG_INVALID that names the folder and the fault: a missing file, files that do not match, an expired certificate. */
  async start(): Promise<void> {
    this.begin(await this.read(), (changed) => this.#source.follow(changed));
  }

  protected read(): Promise<AuthorityFiles> {
    return readPlugged(this.#source);
  }

  protected parse(files: AuthorityFiles): Authority {
    const { where } = this;
    const next = parsePlugged(where, files, this.#clock.now());
    const former = this.content === null ? this.#former : this.current;
    if (former === null || shareRoot(former, next)) return next;
    throw new MeshError(
      'CONFIG_INVALID',
      `the roots in ${where} share none with those in force: keep a root in force in root-cert.pem until all nodes have read the new one (a start of the CA takes the files as they are)`,
      { detail: { where } },
    );
  }
}

/** True when any file of a signing certificate is there. */
export async function isPlugged(source: PluggedFiles): Promise<boolean> {
  const found = await source.read([...ISTIO_FILES, ...TLS_FILES]);
  return found.some((content) => content !== null);
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
