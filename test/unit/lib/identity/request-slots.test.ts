import test from 'ava';
import { RequestSlots } from '../../../../lib/identity/request-slots.ts';

function kit(limit: number): {
  slots: RequestSlots;
  begun: string[];
  enter: (key: string, urgency: 'realTime' | 'renewal' | 'warmUp') => void;
} {
  const slots = new RequestSlots(limit);
  const begun: string[] = [];
  return {
    slots,
    begun,
    enter: (key, urgency) => slots.enter(key, urgency, () => begun.push(key)),
  };
}

test('what waits begins by urgency, then by arrival', (t) => {
  const { slots, begun, enter } = kit(1);
  enter('a', 'warmUp');
  enter('b', 'warmUp');
  enter('c', 'renewal');
  enter('d', 'warmUp');
  for (const key of ['a', 'c', 'b', 'd']) slots.leave(key);
  t.deepEqual(begun, ['a', 'c', 'b', 'd']);
});

test('real-time takes no slot and waits for none', (t) => {
  const { slots, begun, enter } = kit(1);
  enter('a', 'warmUp');
  enter('b', 'realTime');
  enter('c', 'warmUp');
  slots.leave('b');
  t.deepEqual(begun, ['a', 'b']);
  slots.raise('c', 'realTime');
  slots.raise('a', 'realTime');
  t.deepEqual(begun, ['a', 'b', 'c']);
});

test('one that leaves while it waits never begins', (t) => {
  const { slots, begun, enter } = kit(1);
  enter('a', 'warmUp');
  enter('b', 'warmUp');
  slots.leave('b');
  slots.leave('b');
  slots.leave('a');
  t.deepEqual(begun, ['a']);
});
