import test from 'ava';
import { parseHosts } from '../../../../lib/dns/hosts-file.ts';
import { searchNames } from '../../../../lib/dns/resolv-conf.ts';

test('a short name is asked for below each search domain first, a long one as it is', (t) => {
  const search = ['demo.svc.cluster.local', 'corp.example'];
  t.deepEqual(searchNames('Db', { search, ndots: 1 }), [
    'db.demo.svc.cluster.local',
    'db.corp.example',
    'db',
  ]);
  t.deepEqual(searchNames('db.example', { search, ndots: 1 }), [
    'db.example',
    'db.example.demo.svc.cluster.local',
    'db.example.corp.example',
  ]);
  t.deepEqual(searchNames('db.example', { search, ndots: 5 }).at(-1), 'db.example');
  t.deepEqual(searchNames('db', { search, ndots: 0 })[0], 'db');
});

test('a dot at the end, or no search domain, leaves the name itself', (t) => {
  t.deepEqual(searchNames('db.', { search: ['corp.example'], ndots: 5 }), ['db']);
  t.deepEqual(searchNames('db', { search: [], ndots: 5 }), ['db']);
});

test('what cannot be asked for is left out', (t) => {
  t.deepEqual(searchNames('a b', { search: ['corp.example'], ndots: 1 }), []);
  t.deepEqual(searchNames('', { search: [], ndots: 1 }), []);
  const long = `${'a'.repeat(63)}.`.repeat(3) + 'a'.repeat(55);
  t.deepEqual(searchNames(long, { search: ['corp.example'], ndots: 1 }), [long]);
});

test('a hosts file is read as hosts(5) has it', (t) => {
  const hosts = parseHosts(
    [
      '# a comment',
      '127.0.0.1\tlocalhost  Db.Example.',
      '::1 localhost # the other family',
      'not-an-address db',
      '::ffff:192.0.2.1 mapped',
      '',
    ].join('\n'),
  );
  t.deepEqual(
    [...hosts],
    [
      ['localhost', ['127.0.0.1', '::1']],
      ['db.example', ['127.0.0.1']],
      ['mapped', ['192.0.2.1']],
    ],
  );
});
