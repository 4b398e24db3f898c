/** Runs the `weft` command as a user calls it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { userEnvironment } from './user-environment.ts';

const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;

/** An end of the command. */
export interface WeftEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs it in this process's environment, with these variables besides. */
export async function runWeft(
  words: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<WeftEnd> {
  const child = spawn(WEFT, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...userEnvironment(), ...variables },
  });
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  return { code, stdout, stderr };
}
