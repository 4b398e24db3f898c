/** Runs a command in a container of the engine, with this process's own standard streams. */
import { once } from 'node:events';
import { request } from 'node:http';
import type { Socket } from 'node:net';
import { z } from 'zod';
import { MeshError, asMeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { kill } from '../local-mesh/processes.ts';
import { ask, askJson } from '../local-mesh/unix-http.ts';
import { FrameSplitter } from './stream-frames.ts';

/** Passed on to the command. */
const FORWARDED = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT'] as const;

const execState = z.looseObject({
  Running: z.boolean(),
  ExitCode: z.int().nullable(),
  Pid: z.int().default(0),
});

/** What to run, and where. */
export interface ContainerCommand {
  readonly socket: string;
  readonly id: string;
  readonly command: readonly string[];
}

/** Resolves with the command's exit status. Throws STATE_UNAVAILABLE when the container or the engine is away. */
export async function execInContainer(wanted: ContainerCommand): Promise<number> {
  const tty = process.stdin.isTTY && process.stdout.isTTY;
  const { Id } = z.looseObject({ Id: z.string() }).parse(
    await post(wanted.socket, `/containers/${encodeURIComponent(wanted.id)}/exec`, {
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Tty: tty,
      Cmd: wanted.command,
    }),
  );
  const stream = await attach(wanted.socket, Id, tty);
  const state = async (): Promise<z.infer<typeof execState>> =>
    execState.parse(await askJson({ socket: wanted.socket, path: `/exec/${Id}/json` }));
  const forward = (signal: NodeJS.Signals): void => {
    // It runs in this machine's process namespace as well, which the container of the supervisor shares.
    state()
      .then(({ Running, Pid }) => Running && Pid > 0 && kill(Pid, signal))
      .catch((error: unknown) => {
        process.stderr.write(`weft: ${signal} was not passed on: ${errorText(error)}\n`);
      });
  };
  for (const signal of FORWARDED) process.on(signal, forward);
  try {
    await carry(stream, tty);
  } finally {
    for (const signal of FORWARDED) process.off(signal, forward);
  }
  return (await state()).ExitCode ?? 0;
}

/** Until the command's output ends. */
async function carry(stream: Socket, tty: boolean): Promise<void> {
  const { stdin, stdout, stderr } = process;
  if (tty) stdin.setRawMode(true);
  // Its end is the command's to see: the stream closes one way.
  stdin.pipe(stream);
  stream.on('error', () => undefined);
  const frames = new FrameSplitter();
  stream.on('data', (chunk: Buffer) => {
    if (tty) stdout.write(chunk);
    else
      for (const { kind, bytes } of frames.push(chunk)) (kind === 2 ? stderr : stdout).write(bytes);
  });
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

async function post(socket: string, path: string, body: unknown): Promise<unknown> {
  const answer = await ask({ socket, method: 'POST', path, body });
  if (answer.status >= 400) {
    throw new MeshError(
      'STATE_UNAVAILABLE',
      `the engine answered ${answer.status} to ${path}: ${answer.body.trim()}`,
    );
  }
  return JSON.parse(answer.body);
}

async function attach(socket: string, id: string, tty: boolean): Promise<Socket> {
  const body = JSON.stringify({ Detach: false, Tty: tty });
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const outgoing = request({
    socketPath: socket,
    method: 'POST',
    path: `/exec/${id}/start`,
    headers: {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      connection: 'Upgrade',
      upgrade: 'tcp',
    },
  });
  outgoing.once('upgrade', (_response, stream: Socket, head: Buffer) => {
    if (head.length > 0) stream.unshift(head);
    resolve(stream);
  });
  outgoing.once('response', (response) => {
    response.resume();
    reject(new Error(`the engine answered ${response.statusCode ?? 0}`));
  });
  outgoing.once('error', reject);
  outgoing.end(body);
  try {
    return await promise;
  } catch (error) {
    throw asMeshError(error, 'STATE_UNAVAILABLE', `cannot run a command over ${socket}`);
  }
}
