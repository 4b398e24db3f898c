import test from 'ava';
import { Roster } from '../../../../lib/collections/roster.ts';
import type { Listed } from '../../../../lib/collections/roster.ts';

class Member implements Listed {
  place = -1;
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

function names(roster: Roster<Member>): string {
  return [...roster]
    .map(({ name }) => name)
    .toSorted()
    .join('');
}

test('holds what was added and not deleted, whichever goes first', (t) => {
  for (const order of ['abcd', 'dcba', 'bdac', 'cabd']) {
    const members = new Map(['a', 'b', 'c', 'd'].map((name) => [name, new Member(name)]));
    const roster = new Roster<Member>();
    for (const member of members.values()) roster.add(member);
    let left = 'abcd';
    for (const name of order) {
      const member = members.get(name);
      if (member !== undefined) roster.delete(member);
      left = left.replace(name, '');
      t.is(names(roster), left);
      t.is(roster.size, left.length);
    }
  }
});

test('what is not in it, or gone already, is not deleted', (t) => {
  const roster = new Roster<Member>();
  const [a, b] = [new Member('a'), new Member('b')];
  roster.delete(a);
  roster.add(a);
  roster.delete(b);
  t.is(names(roster), 'a');
  roster.delete(a);
  roster.add(b);
  roster.delete(a);
  t.is(names(roster), 'b');
});

test('members may come and go while it is walked through', (t) => {
  const roster = new Roster<Member>();
  const members = ['a', 'b', 'c'].map((name) => new Member(name));
  for (const member of members) roster.add(member);
  let seen = '';
  for (const member of roster) {
    seen += member.name;
    for (const other of members) roster.delete(other);
    roster.add(new Member('z'));
  }
  t.is(seen, 'abc');
  t.is(names(roster), 'zzz');
});
