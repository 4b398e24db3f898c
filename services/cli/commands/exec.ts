import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import type { Command } from 'commander';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { meshPaths } from '../local/mesh-paths.ts';
import type { MeshPaths } from '../local/mesh-paths.ts';
import { requireMesh } from '../local/mesh-record.ts';
import { insidePod } from '../local/pod-namespaces.ts';
import type { SupervisedPod } from '../local/supervisor-api.ts';
import { askJson } from '../local/unix-http.ts';
import type { CommandContext } from '../main.ts';
import { meshOption } from '../output.ts';
import { UsageError } from '../usage-error.ts';

/** As shells report a command ended by a signal. */
const SIGNAL_STATUS_BASE = 128;
const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;

/** `weft exec`. */
export function addExec(program: Command, context: CommandContext): void {
  program
    .command('exec')
    .description("run a command in a pod's namespaces")
    .usage('[options] <namespace>/<pod> -- <command…>')
    .argument('<namespace/pod>', 'the pod')
    .argument('<command...>', 'the command and its arguments')
    .addOption(meshOption())
    .addHelpText(
      'after',
      "\nStandard input, output and errors, signals and the exit status are the command's own (128+n when signal n ended it).",
    )
    .passThroughOptions()
    .action(async (target: string, command: string[], options: { mesh?: string }) => {
      const paths = meshPaths(options.mesh, context.environment);
      await requireMesh(paths);
      const pod = await findPod(paths, target);
      const enter = insidePod({ netns: pod.netns, mountsFile: pod.mounts });
      context.exit(await runInside([...enter, ...command]));
    });
}

/** The pod `namespace/name`. Throws UsageError for another form, STATE_INVALID when there is none. */
async function findPod(paths: MeshPaths, target: string): Promise<SupervisedPod> {
  if (!/^[^/]+\/[^/]+$/.test(target)) {
    throw new UsageError(`name the pod as <namespace>/<pod>, got ${JSON.stringify(target)}`);
  }
  const { pods } = await askJson<{ pods: SupervisedPod[] }>({
    socket: paths.supervisorSocket,
    path: '/pods',
  });
  const pod = pods.find(({ namespace, name }) => `${namespace}/${name}` === target);
  if (pod !== undefined) return pod;
  const names = pods.slice(0, 20).map(({ namespace, name }) => `${namespace}/${name}`);
  throw new MeshError(
    'STATE_INVALID',
    `no pod ${target} runs here; there are ${names.join(', ') || 'none'}`,
  );
}

/** Runs a command line in the foreground; resolves with its exit status. */
async function runInside(line: readonly string[]): Promise<number> {
  const [program = '', ...parameters] = line;
  const child = spawn(program, parameters, { stdio: 'inherit' });
  // A terminal signals the child itself; what is sent to this process alone is passed on.
  const forward = (signal: NodeJS.Signals): void => void child.kill(signal);
  for (const signal of FORWARDED) process.on(signal, forward);
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    if (code !== null) return code;
    return SIGNAL_STATUS_BASE + (signal === null ? 0 : constants.signals[signal]);
  } finally {
    for (const signal of FORWARDED) process.off(signal, forward);
  }
}
