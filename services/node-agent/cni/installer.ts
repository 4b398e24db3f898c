/** Installs the CNI plugin on the node, watches over what it wrote, and repairs it. */
import { copyFile, chmod, mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import {
  ifExists,
  readIfPresent,
  removeTemporaries,
  replaceFile,
  temporaryName,
} from '../../../lib/files/atomic-file.ts';
import { FollowedFile } from '../../../lib/files/followed-file.ts';
import { FreshReading } from '../../../lib/files/fresh-reading.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import {
  PLUGIN,
  copyWithPlugin,
  findPrimary,
  hasPlugin,
  listName,
  sortsBefore,
  versionFault,
  withPlugin,
} from './conflist.ts';
import type { NetworkList } from './conflist.ts';
import { checkTarget, saveSingle } from './chained-list.ts';
import { installHelper } from './helper-files.ts';
import { CONTEST, INSTALL_DEBOUNCE_MS, INSTALL_POLL_MS } from './limits.ts';
import { formerLists, readNetworkFiles } from './network-files.ts';
import type { NetworkFiles } from './network-files.ts';
import { KUBECONFIG_NAME, removeInstallation } from './removal.ts';

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
  /**
   * Returns the text of the kubeconfig, or rejects with the reason why there is none. Null where there is no Kubernetes; then nobody
   * judges pods while the agent is away.
   */
  readonly kubeconfig: (() => Promise<string>) | null;
}

/** Outcomes of an installation, under istio-cni's names. */
export type InstallResult =
  | 'SUCCESS'
  | 'COPY_BINARIES_FAILURE'
  | 'CREATE_KUBECONFIG_FAILURE'
  | 'CREATE_CNI_CONFIG_FAILURE';

/** The first part of an installation that is not complete, and why. */
export interface InstallFailure {
  readonly result: InstallResult;
  readonly problem: string;
}

/** Ports of an {@link Installer}. */
export interface InstallDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Called after every round that changed something or failed. */
  readonly onResult: (result: InstallResult) => void;
  /** Called when the installation becomes complete, or is no longer. */
  readonly onReady: (ready: boolean) => void;
}

/** Installs in rounds. Each round compares and writes what differs, so a repair is a round like the first. */
export class Installer {
  readonly #options: InstallOptions;
  readonly #deps: InstallDeps;
  readonly #rounds = new FreshReading(() => this.#round());
  readonly #followed: FollowedFile[] = [];
  /** Times of the last rewrites of a list. */
  readonly #rewrites: number[] = [];
  #ready = false;
  #failed: InstallFailure | null = null;
  #conflict: string | null = null;
  #refused: ReadonlySet<string> = new Set();
  #closed = false;

  constructor(options: InstallOptions, deps: InstallDeps) {
    this.#options = options;
    this.#deps = deps;
  }

  /** Resolves after the first round; later rounds follow changes of the folders until {@link close}. */
  async start(): Promise<void> {
    const { netDir, binDir } = this.#options;
    await this.#rounds.run();
    for (const path of [join(netDir, PLUGIN), join(binDir, PLUGIN)]) {
      const times = { debounceMs: INSTALL_DEBOUNCE_MS, pollMs: INSTALL_POLL_MS };
      this.#followed.push(new FollowedFile({ path, ...times }, this.#deps, () => this.check()));
    }
  }

  /** True while everything is in place. */
  get ready(): boolean {
    return this.#ready;
  }

  /** The first part of the installation that is not complete, and why; null when all is. */
  get failed(): InstallFailure | null {
    return this.#failed;
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

  /** Removes what was installed. Call it after {@link close}. Rejects as {@link removeInstallation}. */
  async remove(): Promise<void> {
    const { netDir, binDir } = this.#options;
    await removeInstallation(this.#options);
    this.#deps.log.info({ netDir, binDir }, 'cni.removed');
  }

  async #round(): Promise<void> {
    if (this.#closed) return;
    const changed: string[] = [];
    const result = await this.#install(changed);
    const ready = result === 'SUCCESS';
    if (changed.length > 0 || !ready) this.#deps.onResult(result);
    if (changed.length > 0) this.#deps.log.info({ changed, ready }, 'cni.installed');
    if (ready) this.#failed = null;
    if (ready && changed.length === 0) this.#conflict = null;
    if (ready === this.#ready) return;
    this.#ready = ready;
    this.#deps.onReady(ready);
  }

  /**
   * The program comes first: a runtime that reads the list calls it at once. List and kubeconfig do not wait for each other: the mesh's
   * pods need the list where the helper has no rights, and its token is renewed while there is no primary.
   */
  async #install(changed: string[]): Promise<InstallResult> {
    const steps = [
      ['COPY_BINARIES_FAILURE', () => this.#installPrograms(changed)],
      ['CREATE_CNI_CONFIG_FAILURE', () => this.#installList(changed)],
      ['CREATE_KUBECONFIG_FAILURE', () => this.#installKubeconfig(changed)],
    ] as const;
    let first: InstallFailure | null = null;
    for (const [result, step] of steps) {
      try {
        await step();
      } catch (error) {
        first ??= { result, problem: errorText(error) };
        if (result === 'COPY_BINARIES_FAILURE') break;
      }
    }
    if (first === null) return 'SUCCESS';
    this.#report(first);
    return first.result;
  }

  #report(failure: InstallFailure): void {
    if (failure.problem === this.#failed?.problem) return;
    this.#failed = failure;
    this.#deps.log.error({ ...failure }, 'cni.not-installed');
  }

  async #installPrograms(changed: string[]): Promise<void> {
    const { binDir, program } = this.#options;
    await mkdir(binDir, { recursive: true, mode: 0o755 });
    if (await installHelper(binDir)) changed.push('helper');
    const path = join(binDir, PLUGIN);
    await removeTemporaries(path);
    const [wanted, there] = await Promise.all([readFile(program), ifExists(readFile(path))]);
    if (there !== null && wanted.equals(there)) return;
    await replaceProgram(program, path);
    changed.push(PLUGIN);
  }

  async #installKubeconfig(changed: string[]): Promise<void> {
    const { kubeconfig, runDir, kubeconfigMode } = this.#options;
    if (kubeconfig === null) return;
    const path = join(runDir, KUBECONFIG_NAME);
    await removeTemporaries(path);
    const text = await kubeconfig();
    if ((await readIfPresent(path)) === text && (await modeOf(path)) === kubeconfigMode) return;
    await replaceFile(path, text, kubeconfigMode);
    changed.push(KUBECONFIG_NAME);
  }

  async #installList(changed: string[]): Promise<void> {
    const files = await readNetworkFiles(this.#options.netDir);
    await this.#writeList(files, changed);
    changed.push(...(await this.#removeFormerLists(files.texts)));
  }

  /** Removes lists that an agent with other settings has made: a runtime would take them first, and nobody derives them again. */
  async #removeFormerLists(texts: NetworkFiles['texts']): Promise<readonly string[]> {
    const { netDir, ownList } = this.#options;
    const former = formerLists(texts, ownList);
    for (const file of former) await rm(join(netDir, file), { force: true });
    return former;
  }

  async #writeList({ texts, unread }: NetworkFiles, changed: string[]): Promise<void> {
    const { netDir, ownList, entry, primary: wanted } = this.#options;
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
    const fault = versionFault(primary);
    if (fault !== null) throw new MeshError('CONFIG_INVALID', fault);
    const file = ownList ?? listName(primary);
    if (ownList !== null && sortsBefore(primary.file, ownList)) {
      this.#conflict = `${primary.file} sorts before ${ownList}, so runtimes would not read the latter: set ISTIO_OWNED_CNI_CONFIG_FILENAME`;
      throw new MeshError('CONFIG_INVALID', this.#conflict);
    }
    if (ownList === null && hasPlugin(primary, entry)) return;
    if (ownList === null) {
      await checkTarget(netDir, { file, text: texts.get(file), primary: primary.file });
    }
    const text = ownList === null ? withPlugin(primary, entry) : copyWithPlugin(primary, entry);
    const path = join(netDir, file);
    await removeTemporaries(path);
    const mode =
      ownList === null ? await modeOf(join(netDir, primary.file)) : this.#options.listMode;
    const written = texts.get(file) === text && (await modeOf(path)) === mode;
    if (!written) await replaceFile(path, text, mode);
    // Runtimes would take the single plugin first. Its file may come back beside a list that stands for it already.
    const hides = ownList === null && file !== primary.file;
    if (hides) await saveSingle(join(netDir, primary.file));
    if (written && !hides) return;
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
}

async function modeOf(path: string): Promise<number> {
  const status = await ifExists(stat(path));
  return (status?.mode ?? 0) & 0o777;
}

/** Replaces a program in one step, so that a runtime starts the old one or the new one. */
async function replaceProgram(from: string, to: string): Promise<void> {
  const fresh = temporaryName(to);
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
