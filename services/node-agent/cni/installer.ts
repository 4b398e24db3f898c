/** Installs the CNI plugin on the node, watches over what it wrote, and repairs it. */
import { randomBytes } from 'node:crypto';
import {
  copyFile,
  chmod,
  lstat,
  mkdir,
  open,
  readFile,
  readdir,
  rename,
  rm,
  stat,
} from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { ifExists, readIfPresent, replaceFile } from '../../../lib/files/atomic-file.ts';
import { FollowedFile } from '../../../lib/files/followed-file.ts';
import { FreshReading } from '../../../lib/files/fresh-reading.ts';
import type { KubernetesConnection } from '../../../lib/kubernetes/connection.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import {
  PLUGIN,
  findPrimary,
  hasPlugin,
  isNetworkFile,
  readNetworkList,
  sortsBefore,
  withPlugin,
  withoutPlugin,
} from './conflist.ts';
import type { NetworkList } from './conflist.ts';
import { installHelper, removeHelper } from './helper-files.ts';
import { kubeconfigText } from './kubeconfig.ts';
import { CONTEST, INSTALL_DEBOUNCE_MS, INSTALL_POLL_MS, MAX_NETWORK_FILE_BYTES } from './limits.ts';

/** Where and what to install. Folders are as this process sees them; the entry names the host's. */
export interface InstallOptions {
  readonly netDir: string;
  readonly binDir: string;
  /** Holds the kubeconfig and the event socket. */
  readonly runDir: string;
  /** The plugin's program. */
  readonly program: string;
  /** Name of the own list; null puts the entry into the primary's file. */
  readonly ownList: string | null;
  /** Name of the primary's file; null finds it. */
  readonly primary: string | null;
  readonly listMode: number;
  readonly kubeconfigMode: number;
  /** The plugin's entry. */
  readonly entry: Readonly<Record<string, unknown>>;
  /** Null where there is no Kubernetes; then nobody judges pods while the agent is away. */
  readonly connection: KubernetesConnection | null;
}

/** Outcomes of an installation, under istio-cni's names. */
export type InstallResult =
  | 'SUCCESS'
  | 'COPY_BINARIES_FAILURE'
  | 'CREATE_KUBECONFIG_FAILURE'
  | 'CREATE_CNI_CONFIG_FAILURE';

/** Ports of an {@link Installer}. */
export interface InstallDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Called after every round that changed something or failed. */
  readonly onResult: (result: InstallResult) => void;
  /** Called when the installation becomes complete, or is no longer. */
  readonly onReady: (ready: boolean) => void;
}

/** The files of the runtime's folder. */
interface NetworkFiles {
  /** The text of each file by its name. */
  readonly texts: ReadonlyMap<string, string>;
  /** Names that cannot be read, and why. */
  readonly unread: ReadonlyMap<string, string>;
}

/** The name of the kubeconfig in the run directory. */
export const KUBECONFIG_NAME = 'weft-cni-kubeconfig';
/** The ending of a `.conf` file that a chained `.conflist` stands for. */
const SAVED = '.weft-saved';

/** Installs in rounds. Each round compares and writes what differs, so a repair is a round like the first. */
export class Installer {
  readonly #options: InstallOptions;
  readonly #deps: InstallDeps;
  readonly #rounds = new FreshReading(() => this.#round());
  readonly #followed: FollowedFile[] = [];
  /** Times of the last rewrites of a list. */
  readonly #rewrites: number[] = [];
  #ready = false;
  #problem: string | null = null;
  #conflict: string | null = null;
  #refused: ReadonlySet<string> = new Set();
  #closed = false;

  constructor(options: InstallOptions, deps: InstallDeps) {
    this.#options = options;
    this.#deps = deps;
  }

  /** Resolves after the first round; later rounds follow changes of the folders until {@link close}. */
  async start(): Promise<void> {
    const { netDir, binDir, connection } = this.#options;
    await this.#rounds.run();
    const token = connection?.token?.kind === 'file' ? [connection.token.path] : [];
    for (const path of [join(netDir, PLUGIN), join(binDir, PLUGIN), ...token]) {
      const times = { debounceMs: INSTALL_DEBOUNCE_MS, pollMs: INSTALL_POLL_MS };
      this.#followed.push(new FollowedFile({ path, ...times }, this.#deps, () => this.check()));
    }
  }

  /** True while everything is in place. */
  get ready(): boolean {
    return this.#ready;
  }

  /** Why the installation is not complete; null when it is. */
  get problem(): string | null {
    return this.#problem;
  }

  /** The option of another component that keeps the list from being in force; null when none is known. */
  get conflict(): string | null {
    return this.#conflict;
  }

  /** Compares and repairs soon. */
  check(): void {
    if (!this.#closed) void this.#rounds.run();
  }

  /** Stops watching; what is installed stays. Resolves when no round runs. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const followed of this.#followed) followed.close();
    await this.#rounds.run();
  }

  /** Removes what was installed, the lists first. Call it after {@link close}. Throws the file system's errors. */
  async remove(): Promise<void> {
    const { netDir, binDir, runDir, ownList } = this.#options;
    if (ownList !== null) await rm(join(netDir, ownList), { force: true });
    for (const [file, text] of (await this.#networkFiles()).texts) {
      const rest = tryRead(file, text, withoutPlugin);
      if (rest === null) continue;
      const path = join(netDir, file);
      const saved = path.replace(/\.conflist$/, `.conf${SAVED}`);
      if ((await readIfPresent(saved)) === null) {
        await replaceFile(path, rest, (await stat(path)).mode & 0o777);
      } else {
        await rename(saved, saved.slice(0, -SAVED.length));
        await rm(path);
      }
    }
    await rm(join(runDir, KUBECONFIG_NAME), { force: true });
    await rm(join(binDir, PLUGIN), { force: true });
    await removeHelper(binDir);
    this.#deps.log.info({ netDir, binDir }, 'cni.removed');
  }

  async #round(): Promise<void> {
    if (this.#closed) return;
    const changed: string[] = [];
    const result = await this.#install(changed);
    const ready = result === 'SUCCESS';
    if (changed.length > 0 || !ready) this.#deps.onResult(result);
    if (changed.length > 0) this.#deps.log.info({ changed, ready }, 'cni.installed');
    if (ready) this.#problem = null;
    if (ready && changed.length === 0) this.#conflict = null;
    if (ready === this.#ready) return;
    this.#ready = ready;
    this.#deps.onReady(ready);
  }

  /** The program comes first: a runtime that reads the list calls it at once. */
  async #install(changed: string[]): Promise<InstallResult> {
    const steps = [
      ['COPY_BINARIES_FAILURE', () => this.#installPrograms(changed)],
      ['CREATE_KUBECONFIG_FAILURE', () => this.#installKubeconfig(changed)],
      ['CREATE_CNI_CONFIG_FAILURE', () => this.#installList(changed)],
    ] as const;
    for (const [failure, step] of steps) {
      try {
        await step();
      } catch (error) {
        this.#report(failure, errorText(error));
        return failure;
      }
    }
    return 'SUCCESS';
  }

  #report(result: InstallResult, problem: string): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#deps.log.error({ result, problem }, 'cni.not-installed');
  }

  async #installPrograms(changed: string[]): Promise<void> {
    const { binDir, program } = this.#options;
    await mkdir(binDir, { recursive: true, mode: 0o755 });
    if (await installHelper(binDir)) changed.push('helper');
    const path = join(binDir, PLUGIN);
    const [wanted, there] = await Promise.all([readFile(program), ifExists(readFile(path))]);
    if (there !== null && wanted.equals(there)) return;
    await replaceProgram(program, path);
    changed.push(PLUGIN);
  }

  async #installKubeconfig(changed: string[]): Promise<void> {
    const { connection, runDir, kubeconfigMode } = this.#options;
    if (connection === null) return;
    const path = join(runDir, KUBECONFIG_NAME);
    const text = await kubeconfigText(connection, this.#deps.clock);
    if ((await readIfPresent(path)) === text && (await modeOf(path)) === kubeconfigMode) return;
    await replaceFile(path, text, kubeconfigMode);
    changed.push(KUBECONFIG_NAME);
  }

  async #installList(changed: string[]): Promise<void> {
    const { netDir, ownList, entry, primary: wanted } = this.#options;
    const { texts, unread } = await this.#networkFiles();
    const { primary, refused } = findPrimary(texts, ownList, wanted);
    this.#tellRefused(refused);
    for (const [file, problem] of unread) {
      // The runtime may be able to read it, and would take it first.
      if (primary === null || sortsBefore(file, primary.file)) {
        throw new MeshError('CONFIG_INVALID', `${file} cannot be read: ${problem}`);
      }
    }
    if (primary === null) {
      const whose = wanted === null ? 'a primary CNI plugin' : wanted;
      throw new MeshError('CONFIG_INVALID', `${netDir} has no configuration of ${whose} yet`);
    }
    const file = ownList ?? primary.file.replace(/\.conf$/, '.conflist');
    if (ownList !== null && sortsBefore(primary.file, ownList)) {
      this.#conflict = `${primary.file} sorts before ${ownList}, so runtimes would not read the latter: set ISTIO_OWNED_CNI_CONFIG_FILENAME`;
      throw new MeshError('CONFIG_INVALID', this.#conflict);
    }
    if (ownList === null && hasPlugin(primary, entry)) return;
    const text = withPlugin(primary, entry);
    const path = join(netDir, file);
    const mode =
      ownList === null ? await modeOf(join(netDir, primary.file)) : this.#options.listMode;
    if (texts.get(file) === text && (await modeOf(path)) === mode) return;
    await replaceFile(path, text, mode);
    // Runtimes would take the single plugin first.
    if (file !== primary.file && ownList === null) {
      await rename(join(netDir, primary.file), join(netDir, `${primary.file}${SAVED}`));
    }
    changed.push(file);
    this.#noteRewrite(file, primary);
  }

  #tellRefused(refused: readonly { readonly file: string; readonly problem: string }[]): void {
    for (const { file, problem } of refused) {
      if (!this.#refused.has(file)) this.#deps.log.warn({ file, problem }, 'cni.file-refused');
    }
    this.#refused = new Set(refused.map(({ file }) => file));
  }

  #noteRewrite(file: string, primary: NetworkList): void {
    const { clock, log } = this.#deps;
    const now = clock.monotonic();
    this.#rewrites.push(now);
    if (this.#rewrites.length <= CONTEST.rewrites) return;
    const first = this.#rewrites.shift() ?? now;
    if (now - first > CONTEST.withinMs) return;
    this.#conflict = `another component replaces ${file} again and again; Cilium does so unless cni.exclusive is false`;
    log.error({ file, primary: primary.file }, 'cni.contested');
  }

  async #networkFiles(): Promise<NetworkFiles> {
    const { netDir } = this.#options;
    const texts = new Map<string, string>();
    const unread = new Map<string, string>();
    for (const name of (await readdir(netDir)).filter(isNetworkFile)) {
      const path = join(netDir, name);
      try {
        // A file may be gone meanwhile; a link is still there without its target, which the host may have.
        const status = (await ifExists(stat(path))) ?? (await ifExists(lstat(path)));
        if (status === null || status.isDirectory()) continue;
        // A pipe would never end.
        if (!status.isFile()) unread.set(name, 'it is no regular file, and no link to one');
        else if (status.size > MAX_NETWORK_FILE_BYTES) {
          unread.set(name, `it is larger than ${MAX_NETWORK_FILE_BYTES} bytes`);
        } else {
          const text = await readIfPresent(path);
          if (text !== null) texts.set(name, text);
        }
      } catch (error) {
        unread.set(name, errorText(error));
      }
    }
    return { texts, unread };
  }
}

function tryRead<T>(file: string, text: string, use: (list: NetworkList) => T): T | null {
  try {
    return use(readNetworkList(file, text));
  } catch (error) {
    // Runtimes ignore the file, and so does a removal.
    if (error instanceof MeshError && error.code === 'CONFIG_INVALID') return null;
    throw error;
  }
}

async function modeOf(path: string): Promise<number> {
  const status = await ifExists(stat(path));
  return (status?.mode ?? 0) & 0o777;
}

/** Replaces a program in one step, so that a runtime starts the old one or the new one. */
async function replaceProgram(from: string, to: string): Promise<void> {
  const fresh = `${to}.${randomBytes(6).toString('hex')}`;
  try {
    await copyFile(from, fresh);
    await chmod(fresh, 0o755);
    await using file = await open(fresh, 'r');
    await file.sync();
    await rename(fresh, to);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  }
}
