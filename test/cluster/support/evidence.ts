import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { TestCluster } from './cluster.ts';
import { SYSTEM } from './weft.ts';

/** Warnings of each pod that are shown, the last ones. */
const MAX_LINES = 12;
/** Shown of each line. */
const MAX_LENGTH = 600;

/** Returns lines that help to find why a test failed: all pods, and the last warnings and errors of Weft's. Never rejects. */
export async function evidence(cluster: TestCluster): Promise<readonly string[]> {
  const ask = (...words: readonly string[]): Promise<string> =>
    cluster.kubectl(...words).catch((error: unknown) => `kubectl: ${errorText(error)}`);
  const found = [await ask('get', 'pods', '-A', '-o', 'wide')];
  const names = await ask('-n', SYSTEM, 'get', 'pods', '-o', 'name');
  for (const name of names.split('\n').filter((line) => line.startsWith('pod/'))) {
    const lines = (await ask('-n', SYSTEM, 'logs', name, '--all-containers')).split('\n');
    const problems = lines.filter((line) => /"level":"(warn|error)"/.test(line)).slice(-MAX_LINES);
    if (problems.length > 0) found.push(name, ...problems.map((line) => line.slice(0, MAX_LENGTH)));
  }
  return found;
}
