/** The rows of the specification in which Weft's control plane differs from upstream on purpose. */
import { readFile } from 'node:fs/promises';

const PAGE = new URL('../../../docs/decisions/mapping-deviations.md', import.meta.url);

/** Reads the rows that the page names in its table's first column. */
export async function listedDeviations(): Promise<ReadonlySet<string>> {
  const lines = (await readFile(PAGE, 'utf8')).split('\n').filter((line) => /^\| \d/.test(line));
  return new Set(lines.flatMap((line) => (line.split('|')[1] ?? '').trim().split(', ')));
}
