import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';

const SCRIPT = `
import sys
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    sys.exit(77)
for family in text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type)
`;
/** Exit status of the script when the parser is not installed. */
const MISSING = 77;
/** Debian's own Python has the package; another Python earlier on the path does not. */
const PYTHON = '/usr/bin/python3';

/**
 * Returns the families, `name type`, that the reference parser of OpenMetrics (Debian's python3-prometheus-client) finds;
 * null when it is not installed. Throws the parser's error.
 */
export async function parseOpenMetrics(page: string): Promise<string[] | null> {
  const child = spawn(PYTHON, ['-c', SCRIPT], { stdio: ['pipe', 'pipe', 'pipe'] });
  const failed = once(child, 'error').then(() => null);
  child.stdin.on('error', () => undefined);
  child.stdin.end(page);
  const done = Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  const ended = await Promise.race([done, failed]);
  if (ended === null) return null;
  const [output, errors, [code]] = ended;
  if (code === MISSING) return null;
  if (code !== 0) throw new Error(`no OpenMetrics: ${errors}`);
  return output.trim().split('\n');
}
