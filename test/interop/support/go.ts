/** The Go programs of the interoperability tests. */
import { buildGoProgram } from '../../support/go-program.ts';
import type { GoProgram, GoSource } from '../../support/go-program.ts';

export type { GoProgram } from '../../support/go-program.ts';

/** A cold build fetches and compiles about a hundred packages. */
const BUILD_TIMEOUT_MS = 300_000;

/** Builds the program of the module in `test/interop/<name>`. Does not throw when the machine lacks something. */
export function goProgram(
  name: string,
  options: Partial<Pick<GoSource, 'tags' | 'timeoutMs'>> = {},
): Promise<GoProgram> {
  const folder = new URL(`../${name}/`, import.meta.url).pathname;
  return buildGoProgram({
    name,
    folder,
    package: '.',
    cache: 'interop',
    timeoutMs: BUILD_TIMEOUT_MS,
    ...options,
  });
}
