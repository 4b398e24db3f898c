import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { DockerHost } from './docker-host.ts';

const run = promisify(execFile);

/** The image that {@link importSleepImage} makes. */
export const SLEEP_IMAGE = 'sleep';

/** Gives the engine an image that holds this machine's `sleep` and its libraries, and nothing else. */
export function importSleepImage(host: DockerHost): Promise<void> {
  return importImage(host, SLEEP_IMAGE, ['sleep']);
}

/** Gives the engine an image that holds programs of this machine and their libraries. It runs the first program. */
export async function importImage(
  host: DockerHost,
  name: string,
  programs: readonly string[],
): Promise<void> {
  const paths = await Promise.all(
    programs.map(async (one) => (await run('sh', ['-c', `command -v ${one}`])).stdout.trim()),
  );
  const { stdout: libraries } = await run('ldd', paths);
  const needed = libraries.match(/(?<=\s)\/\S+(?= \()/g) ?? [];
  const archive = join(host.folder, `${name}.tar`);
  const files = [...new Set([...paths, ...needed])].map((file) => file.slice(1));
  await run('tar', ['--create', '--dereference', '--file', archive, '--directory=/', ...files]);
  await host.docker('import', '--change', `ENTRYPOINT ["${paths[0]}"]`, archive, name);
}
