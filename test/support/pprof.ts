import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { processEnvironment } from '../../lib/config/env.ts';

const run = promisify(execFile);

/** Runs `go tool pprof -top` on a profile. Returns null unless WEFT_REQUIRE_GO is set, because Go first builds the tool. */
export async function pprofTop(path: string): Promise<string | null> {
  const { WEFT_REQUIRE_GO: wanted } = processEnvironment();
  if (wanted === undefined) return null;
  const { stdout } = await run('go', ['tool', 'pprof', '-top', path]);
  return stdout;
}
