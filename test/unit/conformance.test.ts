/** Tests that docs/conformance.md matches the tests. */
import { readFile } from 'node:fs/promises';
import test from 'ava';
import { brokenReferences, rulesOf } from '../conformance/references.ts';
import { CONFORMANCE_PAGE, conformancePage } from '../conformance/page.ts';

test('the page is up to date (npm run docs), and every tag names a rule', async (t) => {
  const { text, unknown } = await conformancePage();
  t.deepEqual(unknown, []);
  t.is(await readFile(CONFORMANCE_PAGE, 'utf8'), text);
});

test('every reference to a rule, a decision or a page names one that exists', async (t) => {
  t.deepEqual(await brokenReferences(), []);
});

test('headings, numbered items and numbered rows are rules', (t) => {
  const page = '# Page\n\n## 1. A\n1. first\n   2. nested\n\n### 1.2 B\n| # | x |\n| 3 | y |\n';
  t.deepEqual([...rulesOf(page)], ['1', '1.1', '1.2', '1.2.3']);
});
