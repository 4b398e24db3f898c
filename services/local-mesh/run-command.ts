import { spawn } from 'node:child_process';
import { MeshError } from '../../lib/errors/mesh-error.ts';

/** Time limit of a system command. */
const COMMAND_TIMEOUT_MS = 30_000;
/** Most output kept of one command; the rest is dropped. */
const OUTPUT_LIMIT_BYTES = 4 * 1024 * 1024;

/**
 * Runs a system command with `input` on its standard input and resolves with its standard output.
 * Throws NETNS_UNAVAILABLE naming the command and what it wrote to standard error.
 */
export async function runCommand(
  command: string,
  parameters: readonly string[],
  input = '',
): Promise<string> {
  const shown = `${command} ${parameters.join(' ')}`.slice(0, 200);
  const child = spawn(command, parameters, {
    // Ctrl-C in the terminal must not interrupt the commands that bring a mesh up or down.
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: COMMAND_TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  const output = collect(child.stdout);
  const errors = collect(child.stderr);
  // A command that ends before it read its input reports the reason itself; ignore the broken pipe.
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  child.once('error', (cause) => {
    reject(new MeshError('NETNS_UNAVAILABLE', `cannot run ${shown}: ${cause.message}`, { cause }));
  });
  child.once('close', (code, signal) => {
    if (code === 0) {
      resolve(output());
      return;
    }
    const how = code === null ? `was ended by ${signal ?? 'a signal'}` : `failed with ${code}`;
    const reason = errors().trim().split('\n').slice(0, 5).join('; ');
    reject(new MeshError('NETNS_UNAVAILABLE', `${shown} ${how}: ${reason}`));
  });
  return promise;
}

function collect(stream: NodeJS.ReadableStream): () => string {
  const chunks: Buffer[] = [];
  let size = 0;
  stream.on('data', (chunk: Buffer) => {
    if (size < OUTPUT_LIMIT_BYTES) chunks.push(chunk);
    size += chunk.length;
  });
  return () => Buffer.concat(chunks).toString('utf8');
}

/** Runs `ip -batch` on the lines, inside network namespace `netns` when one is given. Runs nothing without lines. */
export async function ipBatch(netns: string | null, lines: readonly string[]): Promise<void> {
  if (lines.length === 0) return;
  const where = netns === null ? [] : ['-n', netns];
  await runCommand('ip', [...where, '-batch', '-'], `${lines.join('\n')}\n`);
}

/** Runs `work` on each item, at most `width` at a time. Rejects with the first failure after all have ended. */
export async function inParallel<T>(
  items: readonly T[],
  width: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = items.values();
  const failures: unknown[] = [];
  const lane = async (): Promise<void> => {
    for (const item of queue) {
      try {
        await work(item);
      } catch (error) {
        failures.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane));
  if (failures.length > 0) throw failures[0];
}
