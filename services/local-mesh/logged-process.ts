import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { openLog } from './log-files.ts';

/** A program to start. */
export interface LoggedCommand {
  readonly command: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string>>;
  readonly logFile: string;
}

/** The end of a process; the code is null when a signal ended it or it could not be started. */
export interface ProcessEnd {
  readonly code: number | null;
  readonly how: string;
}

/** A started process and its end, which is always reported. */
export interface LoggedProcess {
  readonly child: ChildProcess;
  readonly ended: Promise<ProcessEnd>;
}

/**
 * Starts a program that writes to a log, in its own session. So Ctrl-C in the terminal reaches only the supervisor, and the
 * program's children end with its group. Calls `decide` once the log is open. `decide` starts the program and takes the process
 * over in the same turn, so a stop either finds the process or prevents it. Rejects when the log cannot be opened.
 */
export async function startLogged(
  { command: [program, ...parameters], env, logFile }: LoggedCommand,
  decide: (start: () => LoggedProcess) => void,
): Promise<void> {
  await using log = await openLog(logFile);
  decide(() => {
    const child = spawn(program, parameters, {
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
      env,
      cwd: '/',
    });
    return { child, ended: endOf(child) };
  });
}

async function endOf(child: ChildProcess): Promise<ProcessEnd> {
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
    return { code, how: code === null ? `ended by ${signal ?? 'a signal'}` : `ended with ${code}` };
  } catch (error) {
    return { code: null, how: `could not start: ${errorText(error)}` };
  }
}
