import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** The end of a program and what it said. */
export interface Outcome {
  readonly code: number | null;
  readonly lines: readonly string[];
}

/** Runs a program to its end; it is killed after `timeoutMs`. */
export async function runProgram(
  path: string,
  args: readonly string[],
  timeoutMs: number,
): Promise<Outcome> {
  const child = spawn(path, [...args], { stdio: ['ignore', 'pipe', 'pipe'], timeout: timeoutMs });
  const lines: string[] = [];
  const read = [child.stdout, child.stderr].map((input) =>
    once(
      createInterface({ input }).on('line', (line) => lines.push(line)),
      'close',
    ),
  );
  const [code] = (await once(child, 'exit')) as [number | null];
  await Promise.all(read);
  return { code, lines };
}
