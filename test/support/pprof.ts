import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { processEnvironment } from '../../lib/config/env.ts';

const run = promisify(execFile);

/** What `go tool pprof -top` says of a profile; null unless WEFT_REQUIRE_GO asks for it, as Go first builds the tool. */
export async function pprofTop(path: string): Promise<string | null> {
  const { WEFT_REQUIRE_GO: wanted } = processEnvironment();
  if (wanted === undefined) return null;
  const { stdout } = await run('go', ['tool', 'pprof', '-top', path]);
  return stdout;
}
