import test from 'ava';
import { RECORDS_PER_MESSAGE } from '../../../../workers/listener/limits.ts';
import { concat, sendRecords } from '../../../../workers/listener/telemetry/reports.ts';
import type { ConnectionRecord } from '../../../../workers/listener/protocol/connections.ts';
import { connectionRecord } from '../../../support/records.ts';

test('many records are sent in messages of a few, with turns in between', async (t) => {
  const sent: (readonly [records: number, done: boolean])[] = [];
  let made = 0;
  function* records(): Generator<ConnectionRecord> {
    for (; made < 2 * RECORDS_PER_MESSAGE; made += 1) yield connectionRecord();
  }
  let madeAtFirstTurn = 0;
  setImmediate(() => {
    madeAtFirstTurn = made;
  });
  await sendRecords(records(), (batch, done) => sent.push([batch.length, done]));
  t.deepEqual(sent, [
    [RECORDS_PER_MESSAGE, false],
    [RECORDS_PER_MESSAGE, false],
    [0, true],
  ]);
  t.true(madeAtFirstTurn < made, 'the thread was not held until all were made');
});

test('nothing is sent as one empty message', async (t) => {
  const sent: boolean[] = [];
  await sendRecords([], (_, done) => sent.push(done));
  t.deepEqual(sent, [true]);
});

test('what is added to the list meanwhile is not walked', (t) => {
  const list = [1, 2];
  const seen: number[] = [];
  for (const item of concat(list, (one) => [one])) {
    seen.push(item);
    if (list.length < 10) list.push(9);
  }
  t.deepEqual(seen, [1, 2]);
});
