import { spawn } from 'node:child_process';
import { MeshError } from '../errors/mesh-error.ts';
import { COMMAND_TIMEOUT_MS, MAX_ERROR_CHARACTERS, MAX_OUTPUT_BYTES } from './limits.ts';

/** The PATH of scripts; that of the caller does not matter. */
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** The place where a script runs. */
export interface ScriptOptions {
  /** Words before the command, e.g. `nsenter --net=…`. */
  readonly enter: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

/**
 * Runs a shell script to its end and resolves to its standard output. Rejects with NETNS_RULES and its error output when it
 * fails, takes too long or writes too much; its processes have ended then.
 */
export function runScript(script: string, options: ScriptOptions): Promise<string> {
  const command = options.enter[0] ?? 'sh';
  const args = [...options.enter, 'sh', '-s'].slice(1);
  const timeoutMs = options.timeoutMs ?? COMMAND_TIMEOUT_MS;
  return new Promise((resolve, reject) => {
    // A process group, so that a time-out also ends the children of the shell.
    const child = spawn(command, args, {
      env: { PATH, LC_ALL: 'C', ...options.environment },
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: true,
    });
    const output: Buffer[] = [];
    let size = 0;
    let errors = '';
    let abandoned: string | null = null;
    const abandon = (why: string): void => {
      abandoned ??= why;
      killGroup(child.pid);
    };
    const timer = setTimeout(() => abandon(`took longer than ${timeoutMs} ms`), timeoutMs);
    child.stdout.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_OUTPUT_BYTES) abandon(`wrote more than ${MAX_OUTPUT_BYTES} bytes`);
      else output.push(chunk);
    });
    child.stderr.on('data', (chunk: Buffer) => {
      errors = (errors + chunk.toString('utf8')).slice(0, MAX_ERROR_CHARACTERS);
    });
    // The exit status reports a shell that ended early.
    child.stdin.on('error', () => undefined);
    child.on('error', (error) => {
      clearTimeout(timer);
      reject(
        new MeshError('NETNS_RULES', `cannot run ${command}: ${error.message}`, { cause: error }),
      );
    });
    child.on('close', (status, signal) => {
      clearTimeout(timer);
      if (abandoned === null && status === 0) {
        resolve(Buffer.concat(output).toString('utf8'));
        return;
      }
      const how = abandoned ?? (signal === null ? `exit status ${status}` : `signal ${signal}`);
      const said = errors.trim().replaceAll('\n', '; ');
      reject(new MeshError('NETNS_RULES', `redirection commands: ${how}${said && `: ${said}`}`));
    });
    child.stdin.end(script);
  });
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    // Already gone.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
