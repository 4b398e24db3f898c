/** The rows of upstream's translation, read from the specification, so that a new row demands a comparison. */
import { readFile } from 'node:fs/promises';

const SPECIFICATION = new URL('../../../docs/spec/istiod-ambient.md', import.meta.url);

/**
 * Reads them, with what each says: `1.1.3` is the third row of a table or item of a list in section 1.1, `1.6.b` the second
 * paragraph of section 1.6.
 */
export async function upstreamRows(): Promise<ReadonlyMap<string, string>> {
  const rows = new Map<string, string>();
  let section = '';
  let number = 0;
  let letter = 0;
  let tableLine = 0;
  for (const line of (await readFile(SPECIFICATION, 'utf8')).split('\n')) {
    const heading = /^##+ (\d\S*) /.exec(line);
    if (heading !== null) {
      section = heading[1] ?? '';
      number = 0;
      letter = 0;
      tableLine = 0;
      continue;
    }
    tableLine = line.startsWith('|') ? tableLine + 1 : 0;
    // A table begins with its heading and a rule.
    if (!isTranslation(section) || line === '' || tableLine === 1 || tableLine === 2) continue;
    const isListed = tableLine > 2 || /^(- |\d+\. )/.test(line);
    const name = isListed ? String(++number) : String.fromCodePoint(FIRST_LETTER + letter++);
    rows.set(`${section}.${name}`, line);
  }
  return rows;
}

const FIRST_LETTER = 97;

/** Sections 1 and 2: objects to workloads and services, policies to authorizations. */
function isTranslation(section: string): boolean {
  return /^[12]\.\d+$/.test(section);
}
