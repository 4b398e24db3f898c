import test from 'ava';
import { RECORD_BYTES, SLAB_BYTES } from '../../../../lib/hbone/engine-framing/limits.ts';
import { RecordBuffer, release } from '../../../../lib/hbone/engine-framing/record-buffer.ts';
import type { Slab } from '../../../../lib/hbone/engine-framing/record-buffer.ts';

/** Makes a buffer in the middle of a bulk transfer. */
function busy(): RecordBuffer {
  const records = new RecordBuffer();
  records.next(RECORD_BYTES);
  return records;
}

test('a record that nobody needs is written over by the next', (t) => {
  const records = busy();
  const { current } = records;
  t.is(current.length, SLAB_BYTES);
  t.is(records.next(RECORD_BYTES), current);
});

test('a record lies behind the one before it as long as that is needed', (t) => {
  const records = busy();
  const first = records.current;
  const slab = records.hold();
  const second = records.next(RECORD_BYTES);
  t.is(second.buffer, first.buffer);
  t.is(second.byteOffset, first.byteOffset + RECORD_BYTES);
  release(slab);
  t.is(records.next(RECORD_BYTES).byteOffset, first.byteOffset);
});

test('memory that is still needed is left behind when it is full, and comes back when it is not', (t) => {
  const records = busy();
  const first = records.current;
  const held: Slab[] = [];
  for (let bytes = 0; bytes < SLAB_BYTES; bytes += RECORD_BYTES) {
    t.is(records.current.buffer, first.buffer);
    held.push(records.hold());
    records.next(RECORD_BYTES);
  }
  t.not(records.current.buffer, first.buffer);
  const [last, ...others] = held;
  for (const slab of others) release(slab);
  const other = busy();
  t.not(other.current.buffer, first.buffer, 'one piece is still needed');
  if (last !== undefined) release(last);
  t.is(busy().current.buffer, first.buffer);
});

test('an idle tunnel keeps the room of one record', (t) => {
  const records = busy();
  t.is(records.next(100).length, RECORD_BYTES);
});
