import { mkdirSync, openSync, writeSync } from 'node:fs';
import { Option } from 'commander';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { processEnvironment } from '../../../lib/config/env.ts';
import type { Environment } from '../../../lib/config/env.ts';
import { retiredVariables } from '../../../lib/config/unknown-variables.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { programPath } from '../../../lib/files/installation.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { EXIT_FAILED } from '../failure.ts';
import { BackgroundSupervisor } from '../../local-mesh/background-supervisor.ts';
import { cleanUp } from '../../local-mesh/cleanup.ts';
import { Interruption, aborted } from '../interruption.ts';
import { parseTimeout } from '../references.ts';
import { LiveView } from '../live-view.ts';
import { logFile, meshPaths } from '../../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../../local-mesh/mesh-paths.ts';
import { liveRecord } from '../../local-mesh/mesh-record.ts';
import { planRequest, podCount } from '../../local-mesh/mesh-request.ts';
import type { UpOptions } from '../../local-mesh/mesh-request.ts';
import { checkEnvironment, checkRequirements } from '../../local-mesh/requirements.ts';
import { Supervisor } from '../../local-mesh/supervisor.ts';
import type { MeshRequest } from '../../local-mesh/supervisor.ts';
import { takeDown } from '../../local-mesh/take-down.ts';
import { waitUntilUp } from '../../local-mesh/wait-until-up.ts';

const DEFAULT_WAIT = '120s';
/** Set for the background process of `--detach`, which supervises and prints nothing. */
const SUPERVISE_FLAG = '--supervise';

interface Options extends UpOptions {
  readonly mesh?: string;
  readonly detach?: boolean;
  readonly wait?: boolean;
  readonly timeout: string;
  readonly supervise?: boolean;
}

/** A mesh to bring up. */
interface Start {
  readonly request: MeshRequest;
  readonly options: Options;
  readonly timeoutMs: number;
  readonly interruption: Interruption;
}

/** Adds `weft up`. */
export function register(command: Command): void {
  command
    .option('--mesh <name>', 'name of the mesh; several can run side by side (default: weft)')
    .option('--detach', 'leave the mesh running in the background')
    .option('--wait', 'return or show the view only when every pod is enrolled and traffic flows')
    .option('--timeout <duration>', 'time limit of --wait', DEFAULT_WAIT)
    .option('--nodes <n>', 'number of nodes (default: 2)')
    .option('--pods <n>', 'extra enrolled pods on every node, in namespace load')
    .option(
      '--proxies <n>',
      'node-proxy processes on every node, which share its pods (default: 1)',
    )
    .option('--manifests <dir>', 'folder of manifests instead of the default ones')
    .option(
      '--external <roles>',
      'roles left to programs of yours: <node>/<actor>[,…]; see weft env',
    )
    .addOption(new Option(SUPERVISE_FLAG).hideHelp())
    .action((options: Options) => up(options));
}

async function up(options: Options): Promise<void> {
  const environment = processEnvironment();
  const paths = meshPaths(options.mesh, environment);
  const timeoutMs = parseTimeout(options.timeout);
  // The foreground process has already checked the environment.
  if (options.supervise !== true) await warnAndCheck(environment);
  const request = await planRequest(options, paths, environment);
  const interruption = new Interruption();
  if (options.supervise === true) return superviseDetached(request, interruption);
  const start = { request, options, timeoutMs, interruption };
  try {
    await prepare(paths, environment);
    if (interruption.signal.aborted) process.exitCode = interruption.exitStatus ?? EXIT_FAILED;
    else if (options.detach === true) await detach(start);
    else await foreground(start);
  } finally {
    interruption.dispose();
  }
}

/** Checks the settings of the actors, and names those that no longer exist. Throws CONFIG_INVALID. */
async function warnAndCheck(environment: Environment): Promise<void> {
  await checkEnvironment(environment);
  const retired = retiredVariables(environment);
  if (retired.length === 0) return;
  process.stderr.write(`weft: ignored settings that no longer exist: ${retired.join(', ')}\n`);
}

/** Checks that this machine can run a mesh, and that no mesh of this name runs. */
async function prepare(paths: MeshPaths, environment: Environment): Promise<void> {
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
}

/** Prints progress on standard error; the view owns standard output. */
function say(text: string): void {
  process.stderr.write(`weft: ${text}\n`);
}

function sayStep(step: string, elapsedMs: number): void {
  say(`${step} (${(elapsedMs / 1_000).toFixed(1)} s)`);
}

function sayUp(paths: MeshPaths, options: Options, startMs: number): void {
  const state = options.wait === true ? 'up' : 'starting';
  sayStep(`mesh ${paths.mesh} is ${state}`, systemClock.monotonic() - startMs);
}

function waitFor(request: MeshRequest, timeoutMs: number, signal: AbortSignal): Promise<void> {
  return waitUntilUp(request.paths, {
    pods: podCount(request.documents),
    timeoutMs,
    clock: systemClock,
    signal,
    onNote: say,
  });
}

async function foreground({ request, options, timeoutMs, interruption }: Start): Promise<void> {
  const { paths } = request;
  const supervisor = startSupervisor(request);
  const end = AbortSignal.any([interruption.signal, supervisor.stopRequested]);
  const ended = aborted(end);
  const view = new LiveView(paths, { out: process.stdout, clock: systemClock });
  await withSupervisor(supervisor, async () => {
    const start = systemClock.monotonic();
    await Promise.race([supervisor.up(sayStep), ended]);
    if (options.wait === true && !end.aborted) {
      await Promise.race([waitFor(request, timeoutMs, end), ended]);
    }
    if (end.aborted) {
      // Ctrl-C is the normal end of a mesh that is up. Before that, it interrupts the command.
      process.exitCode = interruption.exitStatus ?? EXIT_FAILED;
      return;
    }
    sayUp(paths, options, start);
    try {
      view.start();
      await ended;
    } finally {
      await view.stop();
    }
  });
}

/** Runs `work`, then takes the mesh down. When both fail, throws the error of `work`. */
async function withSupervisor(supervisor: Supervisor, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    say('taking the mesh down');
    await supervisor.down().catch((reason: unknown) => {
      say(`could not take it down: ${errorText(reason)}`);
    });
    throw error;
  }
  say('taking the mesh down');
  await supervisor.down();
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
async function superviseDetached(request: MeshRequest, interruption: Interruption): Promise<void> {
  const supervisor = startSupervisor(request);
  const ended = aborted(AbortSignal.any([interruption.signal, supervisor.stopRequested]));
  await withSupervisor(supervisor, async () => {
    await Promise.race([supervisor.up(sayStep), ended]);
    await ended;
  });
}

async function detach({ request, options, timeoutMs, interruption }: Start): Promise<void> {
  const { paths } = request;
  const start = systemClock.monotonic();
  const over = new AbortController();
  const signal = AbortSignal.any([interruption.signal, over.signal]);
  const supervisor = await BackgroundSupervisor.start(paths, superviseArguments(options, paths));
  const up = async (): Promise<void> => {
    await supervisor.started(signal);
    if (options.wait === true) await waitFor(request, timeoutMs, signal);
  };
  try {
    await Promise.race([up(), supervisor.ended(), aborted(interruption.signal)]);
    if (interruption.signal.aborted) {
      say('taking the mesh down');
      await takeDown(paths);
      process.exitCode = interruption.exitStatus ?? EXIT_FAILED;
      return;
    }
  } catch (error) {
    await takeDown(paths);
    throw error;
  } finally {
    over.abort();
    await supervisor.leave();
  }
  sayUp(paths, options, start);
}

function superviseArguments(options: Options, paths: MeshPaths): string[] {
  const main = programPath('services/cli/main.ts');
  const passed = (['nodes', 'pods', 'proxies', 'manifests', 'external'] as const).flatMap(
    (name) => {
      const value = options[name];
      return value === undefined ? [] : [`--${name}`, value];
    },
  );
  return [...process.execArgv, main, 'up', '--mesh', paths.mesh, ...passed, SUPERVISE_FLAG];
}
