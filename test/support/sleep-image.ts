import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { DockerHost } from './docker-host.ts';

const run = promisify(execFile);

/** The image that {@link importSleepImage} makes. */
export const SLEEP_IMAGE = 'sleep';

/** Gives the engine an image that holds this machine's `sleep` and its libraries, and nothing else. */
export async function importSleepImage(host: DockerHost): Promise<void> {
  const { stdout: program } = await run('sh', ['-c', 'command -v sleep']);
  const { stdout: libraries } = await run('ldd', [program.trim()]);
  const files = [program.trim(), ...(libraries.match(/\/\S+/g) ?? [])];
  const archive = join(host.folder, 'sleep.tar');
  const names = files.map((file) => file.slice(1));
  await run('tar', ['--create', '--dereference', '--file', archive, '--directory=/', ...names]);
  await host.docker('import', '--change', `ENTRYPOINT ["${program.trim()}"]`, archive, SLEEP_IMAGE);
}
