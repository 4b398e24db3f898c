import { spawn } from 'node:child_process';
import { mkdirSync, openSync, writeSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { processEnvironment } from '../../../lib/config/env.ts';
import { parseDuration } from '../../../lib/config/fields.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { cleanUp } from '../local/cleanup.ts';
import { LiveView } from '../local/live-view.ts';
import { lastLines, openLog } from '../local/log-files.ts';
import { askStatus } from '../local/mesh-client.ts';
import { logFile, meshPaths } from '../local/mesh-paths.ts';
import type { MeshPaths } from '../local/mesh-paths.ts';
import { liveRecord } from '../local/mesh-record.ts';
import { planRequest, podCount } from '../local/mesh-request.ts';
import type { UpOptions } from '../local/mesh-request.ts';
import { checkRequirements } from '../local/requirements.ts';
import { Supervisor } from '../local/supervisor.ts';
import type { MeshRequest } from '../local/supervisor.ts';
import { takeDown } from '../local/take-down.ts';
import { waitUntilUp } from '../local/wait-until-up.ts';
import { UsageError } from '../usage-error.ts';

const DEFAULT_WAIT = '120s';
/** Set for the process that `--detach` leaves behind: it supervises and prints nothing. */
const SUPERVISE_FLAG = '--supervise';
/** A supervisor in the background answers its socket within this, or its log is shown. */
const DETACHED_START_TIMEOUT_MS = 90_000;

interface Options extends UpOptions {
  readonly mesh?: string;
  readonly detach?: boolean;
  readonly wait?: boolean;
  readonly timeout: string;
  readonly supervise?: boolean;
}

/** Adds `weft up`. */
export function register(program: Command): void {
  program
    .command('up')
    .description(
      'bring up a local mesh: nodes and pods in network namespaces, every actor a process',
    )
    .option('--mesh <name>', 'name of the mesh; several can run side by side (default: weft)')
    .option('--detach', 'leave the mesh running in the background')
    .option('--wait', 'return or show the view only when every pod is enrolled and traffic flows')
    .option('--timeout <duration>', 'time limit of --wait', DEFAULT_WAIT)
    .option('--nodes <n>', 'number of nodes (default: 2)')
    .option('--pods <n>', 'extra enrolled pods on every node, in namespace load')
    .option('--manifests <dir>', 'folder of manifests instead of the default ones')
    .option(
      '--external <roles>',
      'roles left to programs of yours: <node>/<actor>[,…]; see weft env',
    )
    .addOption(program.createOption(SUPERVISE_FLAG).hideHelp())
    .action((options: Options) => up(options));
}

async function up(options: Options): Promise<void> {
  const environment = processEnvironment();
  const paths = meshPaths(options.mesh, environment);
  const timeoutMs = waitLimit(options.timeout);
  const request = await planRequest(options, paths, environment);
  if (options.supervise === true) return superviseDetached(request);
  await checkRequirements(process.getuid?.() ?? -1, environment['PATH'] ?? '');
  const running = await liveRecord(paths);
  if (running !== null) {
    throw new MeshError(
      'STATE_CONFLICT',
      `mesh ${paths.mesh} runs already (pid ${running.supervisor.pid}); take it down with: weft down`,
    );
  }
  const left = await cleanUp(paths);
  if (left.namespaces > 0 || left.processes > 0) {
    say(
      `removed what a crashed mesh left: ${left.namespaces} namespaces, ${left.processes} processes`,
    );
  }
  if (options.detach === true) await detach(request, options, timeoutMs);
  else await foreground(request, options, timeoutMs);
}

function waitLimit(text: string): number {
  try {
    return parseDuration(text);
  } catch (error) {
    throw new UsageError(`--timeout ${errorText(error)}`);
  }
}

/** Progress goes to standard error; standard output belongs to the view. */
function say(text: string): void {
  process.stderr.write(`weft: ${text}\n`);
}

function sayStep(step: string, elapsedMs: number): void {
  say(`${step} (${(elapsedMs / 1_000).toFixed(1)} s)`);
}

function waitFor(request: MeshRequest, timeoutMs: number): Promise<void> {
  return waitUntilUp(request.paths, {
    pods: podCount(request.documents),
    timeoutMs,
    clock: systemClock,
    onMissing: say,
  });
}

async function foreground(
  request: MeshRequest,
  options: Options,
  timeoutMs: number,
): Promise<void> {
  const { paths } = request;
  const supervisor = startSupervisor(request);
  const stopped = Promise.withResolvers<void>();
  const stop = (): void => stopped.resolve();
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
  supervisor.stopRequested.addEventListener('abort', stop);
  let interrupted = false;
  void stopped.promise.then(() => (interrupted = true));
  const view = new LiveView(paths, { out: process.stdout, clock: systemClock });
  try {
    const start = systemClock.monotonic();
    await Promise.race([supervisor.up(sayStep), stopped.promise]);
    if (options.wait === true && !interrupted) {
      await Promise.race([waitFor(request, timeoutMs), stopped.promise]);
    }
    if (!interrupted) {
      sayStep(
        `mesh ${paths.mesh} is ${options.wait === true ? 'up' : 'starting'}`,
        systemClock.monotonic() - start,
      );
      view.start();
      await stopped.promise;
    }
  } finally {
    await view.stop();
    say('taking the mesh down');
    await supervisor.down();
  }
}

function startSupervisor(request: MeshRequest): Supervisor {
  mkdirSync(request.paths.logsDir, { recursive: true });
  const destination = openSync(logFile(request.paths, 'supervisor', null), 'a', 0o640);
  const log = createLogger(
    { actor: 'supervisor' },
    { write: (line: string) => void writeSync(destination, line) },
  );
  return new Supervisor(request, { clock: systemClock, log });
}

/** The background half of `--detach`: lives until `weft down` or a signal. */
async function superviseDetached(request: MeshRequest): Promise<void> {
  const supervisor = startSupervisor(request);
  const stopped = Promise.withResolvers<void>();
  const stop = (): void => stopped.resolve();
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
  supervisor.stopRequested.addEventListener('abort', stop);
  try {
    await Promise.race([supervisor.up(sayStep), stopped.promise]);
    await stopped.promise;
  } finally {
    await supervisor.down();
  }
}

async function detach(request: MeshRequest, options: Options, timeoutMs: number): Promise<void> {
  const { paths } = request;
  mkdirSync(paths.logsDir, { recursive: true });
  const output = await openLog(logFile(paths, 'supervisor.out', null));
  const child = spawn(
    process.execPath,
    [...process.execArgv, ...superviseArguments(options, paths)],
    {
      detached: true,
      stdio: ['ignore', output.fd, output.fd],
      cwd: process.cwd(),
    },
  );
  await output.close();
  child.unref();
  const ended = new Promise<number | null>((resolve) =>
    child.once('exit', (code) => resolve(code)),
  );
  const start = systemClock.monotonic();
  try {
    await Promise.race([
      started(paths),
      ended.then((code) => {
        throw new MeshError('ACTOR_FAILED', `the supervisor ended with status ${code ?? 'none'}`);
      }),
    ]);
    if (options.wait === true) await waitFor(request, timeoutMs);
  } catch (error) {
    for (const line of await lastLines(logFile(paths, 'supervisor.out', null), 5)) say(line);
    await takeDown(paths);
    throw error;
  }
  sayStep(
    `mesh ${paths.mesh} is ${options.wait === true ? 'up' : 'starting'}`,
    systemClock.monotonic() - start,
  );
  // The child is not ours to wait for.
  child.removeAllListeners('exit');
}

function superviseArguments(options: Options, paths: MeshPaths): string[] {
  const main = new URL('../main.ts', import.meta.url).pathname;
  const passed = (['nodes', 'pods', 'manifests', 'external'] as const).flatMap((name) => {
    const value = options[name];
    return value === undefined ? [] : [`--${name}`, value];
  });
  return [main, 'up', '--mesh', paths.mesh, ...passed, SUPERVISE_FLAG];
}

/** Resolves when the supervisor has all processes running. */
async function started(paths: MeshPaths): Promise<void> {
  const end = systemClock.monotonic() + DETACHED_START_TIMEOUT_MS;
  for (;;) {
    try {
      const status = await askStatus(paths);
      if (status.started) return;
    } catch (error) {
      if (systemClock.monotonic() > end) throw error;
    }
    if (systemClock.monotonic() > end) {
      throw new MeshError('ACTOR_DEADLINE', 'the supervisor did not finish starting the mesh');
    }
    await wait(100);
  }
}
