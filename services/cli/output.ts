/** Output of the commands: results on standard output, everything else on standard error. */
import { once } from 'node:events';
import { Option } from 'commander';
import type { Command } from 'commander';

/** `-o json`. */
export function outputOption(): Option {
  return new Option(
    '-o, --output <format>',
    'json prints the shape described in docs/cli.md',
  ).choices(['json']);
}

/** `--mesh`, which every command that speaks with a mesh takes. */
export function meshOption(): Option {
  return new Option('--mesh <name>', 'name of the mesh (default: WEFT_MESH, or weft)');
}

/** Options that choose a cluster instead of a local mesh. */
export interface ClusterOptions {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly namespace?: string;
}

/** The options of {@link ClusterOptions}. */
export function clusterOptions(): readonly Option[] {
  return [
    new Option('--kubeconfig <file>', 'kubeconfig file (default: KUBECONFIG, or ~/.kube/config)'),
    new Option('--context <name>', 'context of the kubeconfig (default: its current one)'),
    new Option('-n, --namespace <name>', "namespace of Weft's release (default: istio-system)"),
  ];
}

/** Adds `--mesh` and what chooses a cluster to a command that reads either. */
export function readsMesh(command: Command): Command {
  for (const option of [meshOption(), ...clusterOptions()]) command.addOption(option);
  return command;
}

/** Options that commands share. */
export interface CommonOptions extends ClusterOptions {
  readonly mesh?: string;
  /** The only node that a command with `--node` is about; all nodes when left out. */
  readonly node?: string;
  readonly output?: 'json';
}

/** Writes to standard output, waiting for a reader that is slow. */
export async function write(text: string | Uint8Array): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain');
}

/** Writes a result: with `-o json` as indented JSON, else as lines of text. */
export function writeResult(
  { output }: Pick<CommonOptions, 'output'>,
  value: unknown,
  lines: readonly string[],
): Promise<void> {
  return write(`${output === 'json' ? JSON.stringify(value, null, 2) : lines.join('\n')}\n`);
}

/** Reports a missing part of the result on standard error. */
export function warn(text: string): void {
  process.stderr.write(`weft: warning: ${text}\n`);
}

/**
 * Handles a reader that closes standard output early (`weft get pods | head -1`), which is no error. The process ends with
 * `status` or, when it has something to clean up, as after a signal.
 */
export function endQuietlyOnBrokenPipe(status: number): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    if (process.listenerCount('SIGTERM') > 0) process.kill(process.pid, 'SIGTERM');
    else process.exit(status);
  });
}
