import test from 'ava';
import * as fc from 'fast-check';
import { LogCursor } from '../../../../lib/bus/log-cursor.ts';
import type { RawEntry } from '../../../../lib/bus/log-cursor.ts';

const change = (version: number, key = `k${version}`, epoch = 'e1'): RawEntry => [
  `${version}-0`,
  ['e', epoch, 'v', String(version), 'o', 's', 'k', key, 'b', `value ${version}`].map((text) =>
    Buffer.from(text),
  ),
];

const versions = (taken: { changes: readonly { version: number }[] }): number[] =>
  taken.changes.map(({ version }) => version);

test('changes are let through once and in order', (t) => {
  const cursor = new LogCursor({ epoch: 'e1', version: 4, id: '4-0' });
  t.deepEqual(versions(cursor.take([change(3), change(4), change(5), change(6)])), [5, 6]);
  t.is(cursor.id, '6-0');
  t.deepEqual(versions(cursor.take([change(6), change(7)])), [7]);
});

test('a missing change ends the walk, what came before counts', (t) => {
  const cursor = new LogCursor({ epoch: 'e1', version: 4, id: '4-0' });
  const taken = cursor.take([change(5), change(7)]);
  t.deepEqual(versions(taken), [5]);
  t.is(taken.end, 'gap');
});

test('another epoch ends the walk', (t) => {
  const cursor = new LogCursor({ epoch: 'e1', version: 4, id: '4-0' });
  t.is(cursor.take([change(1, 'k', 'e2')]).end, 'epoch');
  const mark: RawEntry = ['9-0', ['e', 'e2', 'v', '3', 'o', 'e'].map((text) => Buffer.from(text))];
  t.is(cursor.take([mark]).end, 'epoch');
});

test('a malformed entry is named and passed over', (t) => {
  const cursor = new LogCursor({ epoch: 'e1', version: 4, id: '4-0' });
  const taken = cursor.take([['5-5', [Buffer.from('x')]], change(5)]);
  t.deepEqual(taken.malformed, [{ id: '5-5', reason: 'no epoch' }]);
  t.deepEqual(versions(taken), [5]);
});

test('garbage never throws', (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.array(fc.uint8Array({ maxLength: 12 }), { maxLength: 12 })),
      (entries) => {
        const cursor = new LogCursor({ epoch: 'e1', version: 0, id: '0-0' });
        const raw = entries.map((fields, index): RawEntry => [
          `${index}-1`,
          fields.map((f) => Buffer.from(f)),
        ]);
        const { changes } = cursor.take(raw);
        t.is(changes.length, 0);
      },
    ),
  );
});

test('a copy taken while the table changes ends in the same rows as the table', (t) => {
  // A history of changes. The copy reads each row at some later point, then replays from its beginning.
  const step = fc.record({ key: fc.constantFrom('a', 'b', 'c'), remove: fc.boolean() });
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 30 }),
      fc.nat(30),
      fc.array(fc.nat(30), { minLength: 3, maxLength: 3 }),
      (history, startAt, readAt) => {
        const start = Math.min(startAt, history.length);
        const rowAt = (key: string, point: number): number | null => {
          let version: number | null = null;
          history.slice(0, point).forEach((entry, index) => {
            if (entry.key === key) version = entry.remove ? null : index + 1;
          });
          return version;
        };
        const cursor = new LogCursor({ epoch: 'e1', version: start, id: `${start}-0` });
        const rows = new Map<string, number>();
        ['a', 'b', 'c'].forEach((key, index) => {
          const point = Math.min(history.length, Math.max(start, readAt[index] ?? 0));
          const version = rowAt(key, point);
          if (version === null) return;
          rows.set(key, version);
          cursor.sawRow({ key, version, value: new Uint8Array() });
        });
        const log = history.map((entry, index): RawEntry => {
          const fields = [
            'e',
            'e1',
            'v',
            String(index + 1),
            'o',
            entry.remove ? 'd' : 's',
            'k',
            entry.key,
            'b',
            '',
          ];
          return [`${index + 1}-0`, fields.map((text) => Buffer.from(text))];
        });
        for (const { key, version, value } of cursor.take(log.slice(start)).changes) {
          if (value === null) rows.delete(key);
          else rows.set(key, version);
        }
        for (const key of ['a', 'b', 'c']) t.is(rows.get(key) ?? null, rowAt(key, history.length));
      },
    ),
  );
});
