import { readdirSync, readlinkSync } from 'node:fs';
import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { isExhausted } from '../../../../lib/linux/errno.ts';
import { closeFd } from '../../../../lib/linux/netns.ts';
import { openTcp } from '../../../../lib/linux/sockets.ts';
import { DescriptorGuard } from '../../../../workers/listener/limits/descriptor-guard.ts';
import { DESCRIPTOR_LINE_MS } from '../../../../workers/listener/limits.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

function guard(limit: number) {
  const lines: string[] = [];
  const clock = new FakeClock();
  const log = {
    error: (_fields: object, message: string) => lines.push(message),
    info: (_fields: object, message: string) => lines.push(message),
  };
  return { lines, clock, guard: new DescriptorGuard(limit, { clock, log: log as never }) };
}

function failed(errno: string): MeshError {
  return new MeshError('NATIVE_SYSCALL', `socket: ${errno}`, { detail: { call: 'socket', errno } });
}

test('the last quarter, 256 at most, is not for accepted connections', (t) => {
  t.true(guard(1_000).guard.admits(749));
  t.false(guard(1_000).guard.admits(750));
  t.true(guard(100_000).guard.admits(100_000 - 257));
  t.false(guard(100_000).guard.admits(100_000 - 256));
});

test('an exhausted process says so now and then, and once when it is over', async (t) => {
  const { guard: own, lines, clock } = guard(1_000);
  for (let n = 0; n < 100; n += 1) t.false(own.admits(900));
  own.note(failed('EMFILE'));
  t.deepEqual(lines, ['descriptors.exhausted']);
  await clock.advance(DESCRIPTOR_LINE_MS);
  own.note(failed('ENFILE'));
  t.is(lines.length, 2);
  // Just below the mark it would switch back and forth.
  t.true(own.admits(700));
  t.is(lines.length, 2);
  t.true(own.admits(20));
  t.true(own.admits(20));
  t.deepEqual(lines.slice(2), ['descriptors.available']);
  own.note(failed('EMFILE'));
  t.is(lines.length, 4);
});

test('what was accepted may go half of that way further, and the rest is for what is no connection', (t) => {
  const { guard: own, lines } = guard(1_000);
  t.true(own.spares(874));
  t.deepEqual(lines, []);
  t.false(own.spares(875));
  t.deepEqual(lines, ['descriptors.exhausted']);
});

test('what would be one of the last is closed again, and what cannot be had is told', (t) => {
  // Use no file object of Node: an ending thread closes the numbers it believes open, even if another file has them by then.
  let name = '';
  const open = (): number => {
    const fd = openTcp({ netnsFd: null, family: 4, mark: 0, noDelay: true });
    name = readlinkSync(`/proc/self/fd/${fd}`);
    return fd;
  };
  const isOpen = (): boolean =>
    readdirSync('/proc/self/fd').some((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`) === name;
      } catch {
        // The descriptor was closed after the list was read.
        return false;
      }
    });
  const made = guard(1_000_000).guard.make(open);
  t.true(isOpen());
  closeFd(made);
  const none = guard(1);
  t.throws(() => none.guard.make(open), { code: 'NATIVE_SYSCALL', message: /no descriptor/ });
  t.false(isOpen());
  const refused = guard(1_000);
  const exhausted = () => {
    throw failed('EMFILE');
  };
  t.throws(() => refused.guard.make(exhausted), { message: 'socket: EMFILE' });
  t.deepEqual(refused.lines, ['descriptors.exhausted']);
});

test('other failures are none of its business', (t) => {
  const { guard: own, lines } = guard(1_000);
  own.note(failed('EPERM'));
  own.note(new Error('EMFILE'));
  t.deepEqual(lines, []);
  t.false(isExhausted(failed('EACCES')));
  t.true(isExhausted(failed('EMFILE')));
});
