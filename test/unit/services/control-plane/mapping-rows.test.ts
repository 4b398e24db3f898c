/** Tests that each rule of upstream's translation is compared with istiod, or is listed as a deviation. */
import test from 'ava';
import { listedDeviations } from '../../../interop/rows/deviations.ts';
import { meshStates } from '../../../interop/rows/settings.ts';
import { upstreamRows } from '../../../interop/rows/upstream.ts';

test('every upstream row is compared, or its deviation is listed', async (t) => {
  const rows = await upstreamRows();
  t.true(rows.size > 70, 'the specification was read');
  const deviations = await listedDeviations();
  t.true(deviations.size > 15, 'the deviations were read');
  const compared = new Set(
    meshStates.flatMap((state) => [
      ...state.rows,
      ...state.comparisons.flatMap((comparison) => comparison.rows),
    ]),
  );
  const missing = [...rows].filter(([id]) => !compared.has(id) && !deviations.has(id));
  t.deepEqual(missing, []);
  const unknown = [...compared, ...deviations].filter((id) => !rows.has(id));
  t.deepEqual(unknown, []);
});
