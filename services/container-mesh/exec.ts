/** Runs a command in a container of the engine, with this process's own standard streams. */
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { systemClock } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { kill } from '../local-mesh/processes.ts';
import { dockerAt } from '../../lib/docker/engine-view.ts';

/** Signals forwarded to the command. */
const FORWARDED = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT'] as const;

/** The engine notes the exit moments after the output ends. A command that closes its output and runs on is given up. */
const EXIT_WAIT_MS = 5_000;
const EXIT_POLL_MS = 50;

/** The command and its container. */
export interface ContainerCommand {
  readonly socket: string;
  readonly id: string;
  readonly command: readonly string[];
}

/** Resolves with the command's exit status. Throws STATE_UNAVAILABLE when the container or the engine is away. */
export async function execInContainer({ socket, id, command }: ContainerCommand): Promise<number> {
  try {
    return await exec(socket, id, command);
  } catch (error) {
    throw asMeshError(error, 'STATE_UNAVAILABLE', `cannot run a command over ${socket}`);
  }
}

async function exec(socket: string, id: string, command: readonly string[]): Promise<number> {
  const tty = process.stdin.isTTY && process.stdout.isTTY;
  const prepared = await dockerAt(socket)
    .getContainer(id)
    .exec({
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Tty: tty,
      Cmd: [...command],
    });
  // Without a time limit: a command may be silent for long.
  const docker = dockerAt(socket, 0);
  const stream = await docker.getExec(prepared.id).start({ hijack: true, Tty: tty });
  const forward = (signal: NodeJS.Signals): void => {
    // The command's pid is valid here: the supervisor's container shares the machine's process namespace.
    prepared
      .inspect()
      .then(({ Running, Pid }) => Running && Pid > 0 && kill(Pid, signal))
      .catch((error: unknown) => {
        process.stderr.write(`weft: ${signal} was not passed on: ${errorText(error)}\n`);
      });
  };
  for (const signal of FORWARDED) process.on(signal, forward);
  try {
    if (tty) stream.pipe(process.stdout, { end: false });
    else docker.modem.demuxStream(stream, process.stdout, process.stderr);
    await carry(stream, tty);
  } finally {
    for (const signal of FORWARDED) process.off(signal, forward);
  }
  return exitCodeOf(() => prepared.inspect());
}

/**
 * Returns the exit status of a command whose output has ended, asking the engine until the command does not run. Throws
 * STATE_UNAVAILABLE when the engine knows no status within {@link EXIT_WAIT_MS}.
 */
export async function exitCodeOf(
  inspect: () => Promise<{ readonly Running: boolean; readonly ExitCode: number | null }>,
  clock: Clock = systemClock,
): Promise<number> {
  const endMs = clock.monotonic() + EXIT_WAIT_MS;
  let last = await inspect();
  while (last.Running && clock.monotonic() < endMs) {
    await clock.sleep(EXIT_POLL_MS);
    last = await inspect();
  }
  if (last.Running) throw new MeshError('STATE_UNAVAILABLE', 'the command runs on without output');
  if (last.ExitCode === null) {
    throw new MeshError(
      'STATE_UNAVAILABLE',
      'the engine does not know the exit status of the command',
    );
  }
  return last.ExitCode;
}

/** Resolves when the command's output ends. */
async function carry(stream: Duplex, tty: boolean): Promise<void> {
  const { stdin } = process;
  if (tty) stdin.setRawMode(true);
  // Half-close the stream, so that the command sees the end of its input.

  stdin.pipe(stream);
  stream.on('error', () => undefined);
  try {
    await once(stream, 'end');
  } finally {
    stdin.unpipe(stream);
    if (tty) stdin.setRawMode(false);
    stdin.unref?.();
    stdin.destroy();
    stream.destroy();
  }
}
