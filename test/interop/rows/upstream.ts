/** The rows of upstream's translation, read from the specification, so that a new row demands a comparison. */
import { readFile } from 'node:fs/promises';

const SPECIFICATION = new URL('../../../docs/spec/istiod-ambient.md', import.meta.url);

/** Reads them: `1.1.3` is the third row or item of section 1.1, `1.4` the text of the section; with what each says. */
export async function upstreamRows(): Promise<ReadonlyMap<string, string>> {
  const rows = new Map<string, string>();
  let section = '';
  let number = 0;
  let tableLine = 0;
  for (const line of (await readFile(SPECIFICATION, 'utf8')).split('\n')) {
    const heading = /^##+ (\d\S*) (.*)/.exec(line);
    if (heading !== null) {
      section = heading[1] ?? '';
      number = 0;
      tableLine = 0;
      if (isTranslation(section)) rows.set(section, heading[2] ?? '');
      continue;
    }
    tableLine = line.startsWith('|') ? tableLine + 1 : 0;
    // A table begins with its heading and a rule.
    if (!isTranslation(section) || !(tableLine > 2 || /^(- |\d+\. )/.test(line))) continue;
    number += 1;
    rows.set(`${section}.${number}`, line);
  }
  return rows;
}

/** Sections 1 and 2: objects to workloads and services, policies to authorizations. */
function isTranslation(section: string): boolean {
  return /^[12]\.\d+$/.test(section);
}
