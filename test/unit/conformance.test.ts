/** docs/conformance.md is what the tests say. */
import { readFile } from 'node:fs/promises';
import test from 'ava';
import { CONFORMANCE_PAGE, conformancePage } from '../conformance/page.ts';

test('the page is up to date (npm run docs), and every tag names a rule', async (t) => {
  const { text, unknown } = await conformancePage();
  t.deepEqual(unknown, []);
  t.is(await readFile(CONFORMANCE_PAGE, 'utf8'), text);
});
