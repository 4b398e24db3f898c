/** Runs a program in this command's place, with its input, output, signals and exit status. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';

/** Forwarded signals. A terminal sends SIGINT and SIGQUIT to the whole group, so the child gets these without help. */
const FORWARDED = ['SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGCONT', 'SIGWINCH'] as const;
const FROM_TERMINAL = ['SIGINT', 'SIGQUIT'] as const;

/** Resolves with the program's exit status, or 128 + n when signal n ended it. Throws ACTOR_FAILED when it cannot start. */
export async function runForeground(command: readonly string[]): Promise<number> {
  const [program = '', ...parameters] = command;
  const child = spawn(program, parameters, { stdio: 'inherit' });
  const terminal = process.stdin.isTTY;
  const forward = (signal: NodeJS.Signals): void => {
    child.kill(signal);
  };
  for (const signal of FORWARDED) process.on(signal, forward);
  for (const signal of FROM_TERMINAL) process.on(signal, terminal ? ignore : forward);
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    return exitStatus(code, signal);
  } catch (error) {
    throw new MeshError('ACTOR_FAILED', `cannot run ${program}: ${errorText(error)}`, {
      cause: error,
    });
  } finally {
    for (const signal of FORWARDED) process.off(signal, forward);
    for (const signal of FROM_TERMINAL) process.off(signal, terminal ? ignore : forward);
  }
}

/** Ignores a signal that the child handles. */
function ignore(): void {}

/** The exit status that a shell would report. */
export function exitStatus(code: number | null, signal: NodeJS.Signals | null): number {
  if (code !== null) return code;
  return 128 + (signal === null ? 0 : constants.signals[signal]);
}
