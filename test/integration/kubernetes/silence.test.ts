/** The client of the Kubernetes API before a server that hangs. A proxy in front of a real one would hide which bytes it held back. */
import test from 'ava';
import { listItems } from '../../../lib/kubernetes/json-stream.ts';
import { clientOf } from '../../support/answering-server.ts';

/** Short, so that the test waits little; the length of the wait decides nothing. */
const SILENCE_MS = 100;

test('an answer that stands still in the middle is cut and asked for again', async (t) => {
  let asked = 0;
  const client = await clientOf(t, (_, response) => {
    asked += 1;
    response.write('{"kind":');
    if (asked === 2) response.end('"Pod"}');
  });
  const request = client.request({ method: 'GET', path: '/half', silenceMs: SILENCE_MS });
  t.deepEqual(await request, { kind: 'Pod' });
  t.is(asked, 2);
});

test('a page of a list that stands still ends its reader', async (t) => {
  const client = await clientOf(t, (_, response) => {
    response.write('{"metadata":{},"items":[{"a":1},');
  });
  const items = listItems(await client.stream({ path: '/page', silenceMs: SILENCE_MS }), 'pods');
  t.deepEqual((await items.next()).value, { a: 1 });
  await t.throwsAsync(items.next(), { message: `nothing came for ${SILENCE_MS} ms` });
});
