import test from 'ava';
import * as fc from 'fast-check';
import { ByteArena } from '../../../../lib/state/byte-arena.ts';

const command = fc.oneof(
  fc.record({ kind: fc.constant('add' as const), bytes: fc.uint8Array({ maxLength: 90 }) }),
  fc.record({ kind: fc.constant('free' as const), at: fc.nat() }),
);

test('holds what was put in, through any order of adding and freeing', (t) => {
  fc.assert(
    fc.property(fc.array(command, { maxLength: 200 }), (commands) => {
      const arena = new ByteArena(64);
      const held = new Map<number, Uint8Array>();
      for (const step of commands) {
        if (step.kind === 'add') {
          held.set(arena.add(step.bytes), step.bytes);
        } else {
          const id = [...held.keys()][step.at % Math.max(1, held.size)];
          if (id === undefined) continue;
          held.delete(id);
          arena.free(id);
        }
        for (const [id, bytes] of held) {
          if (!Buffer.from(arena.get(id)).equals(Buffer.from(bytes))) return false;
        }
      }
      return true;
    }),
    { numRuns: 300 },
  );
  t.pass();
});

test('takes freed space back', (t) => {
  const arena = new ByteArena(1_024);
  const record = new Uint8Array(100);
  let ids = Array.from({ length: 100 }, () => arena.add(record));
  const full = arena.allocatedBytes;
  for (let round = 0; round < 50; round += 1) {
    for (const id of ids) arena.free(id);
    ids = ids.map(() => arena.add(record));
  }
  t.true(arena.allocatedBytes <= full + 2 * 1_024);
});

test('bytes that are not held are a defect', (t) => {
  const arena = new ByteArena();
  const id = arena.add(new Uint8Array(3));
  arena.free(id);
  t.throws(() => arena.get(id), { name: 'InvariantError' });
  t.throws(() => arena.free(id), { name: 'InvariantError' });
});
