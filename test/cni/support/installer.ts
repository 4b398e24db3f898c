/** An installer on folders of its own. */
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { Installer } from '../../../services/node-agent/cni/installer.ts';
import type { InstallOptions, InstallResult } from '../../../services/node-agent/cni/installer.ts';
import { keptLog } from '../../support/actor-context.ts';
import type { LogLine } from '../../support/actor-context.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';
import { PLUGIN_PATH } from './plugin.ts';

/** Weft's entry in the lists of these tests. */
export const ENTRY = { type: 'weft-cni', cni_agent_run_dir: '/run/weft', on_unknown: 'deny' };

/** The host of one test. */
export interface InstallSite {
  readonly options: InstallOptions;
  readonly lines: LogLine[];
  readonly results: InstallResult[];
  /** Every change of readiness. */
  readonly states: boolean[];
  /** Makes an installer, with other options where some are given, and runs its first round. The test closes it. */
  start(others?: Partial<InstallOptions>): Promise<Installer>;
  /** Writes a file of the folder of CNI configurations as a primary plugin does. */
  put(file: string, text: string): Promise<void>;
  /** Copies a fixture into that folder. */
  putFixture(file: string): Promise<string>;
  /** Names and texts of that folder. */
  files(): Promise<Record<string, string>>;
  /** Waits until a file of that folder passes a check. */
  fileWhen(file: string, passes: (text: string) => boolean): Promise<string>;
}

/** Makes folders for one host. */
export async function installSite(
  t: ExecutionContext,
  changes: Partial<InstallOptions> = {},
): Promise<InstallSite> {
  const dir = await makeScratch('install');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const options: InstallOptions = {
    netDir: join(dir, 'net.d'),
    binDir: join(dir, 'bin'),
    runDir: join(dir, 'run'),
    program: PLUGIN_PATH,
    ownList: '02-weft-cni.conflist',
    primary: null,
    listMode: 0o600,
    kubeconfigMode: 0o600,
    entry: ENTRY,
    kubeconfig: null,
    ...changes,
  };
  await mkdir(options.netDir);
  await mkdir(options.runDir);
  const { log, lines } = keptLog('node-agent');
  const results: InstallResult[] = [];
  const states: boolean[] = [];
  const put = (file: string, text: string): Promise<void> =>
    writeFile(join(options.netDir, file), text);
  return {
    options,
    lines,
    results,
    states,
    start: async (others = {}) => {
      const installer = new Installer(
        { ...options, ...others },
        {
          clock: systemClock,
          log,
          onResult: (result) => results.push(result),
          onReady: (ready) => states.push(ready),
        },
      );
      t.teardown(() => installer.close());
      await installer.start();
      return installer;
    },
    put,
    putFixture: async (file) => {
      const text = await readFile(new URL(`../fixtures/${file}`, import.meta.url), 'utf8');
      await put(file, text);
      return text;
    },
    files: async () => {
      const names = await readdir(options.netDir);
      const read = async (name: string): Promise<readonly [string, string]> => [
        name,
        await readFile(join(options.netDir, name), 'utf8'),
      ];
      return Object.fromEntries(await Promise.all(names.map(read)));
    },
    fileWhen: (file, passes) =>
      until(
        async () => {
          const text = await readFile(join(options.netDir, file), 'utf8');
          return passes(text) ? text : null;
        },
        { what: file },
      ),
  };
}
