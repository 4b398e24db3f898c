import test from 'ava';
import { aclRules, redisUsers, renderUsersAcl } from '../../../../lib/bus/acl.ts';
import { busConfig, busVariables, parseRedisUrl } from '../../../../lib/bus/config.ts';
import { defineConfig } from '../../../../lib/config/define-config.ts';
import { InvariantError } from '../../../../lib/errors/assert.ts';

test('the forms of REDIS_URL', (t) => {
  t.deepEqual(parseRedisUrl('unix:///run/weft/redis.sock'), {
    kind: 'unix',
    path: '/run/weft/redis.sock',
  });
  t.deepEqual(parseRedisUrl('redis://cache'), {
    kind: 'tcp',
    host: 'cache',
    port: 6379,
    tls: false,
  });
  t.deepEqual(parseRedisUrl('rediss+sentinel://a:1,[fd00::2]/weft'), {
    kind: 'sentinel',
    sentinels: [
      { host: 'a', port: 1 },
      { host: 'fd00::2', port: 26_379 },
    ],
    master: 'weft',
    tls: true,
  });
  t.deepEqual(parseRedisUrl('rediss://[fd00::1]:7000/'), {
    kind: 'tcp',
    host: 'fd00::1',
    port: 7000,
    tls: true,
  });
});

test('what is no REDIS_URL is refused with a reason', (t) => {
  for (const [url, message] of [
    ['http://x', /must be unix/],
    ['unix://relative', /must be unix/],
    [`unix:///${'x'.repeat(120)}`, /longer than 107 bytes/],
    ['redis://user:secret@host', /must not hold credentials/],
    ['redis://host/3', /must be unix/],
    ['', /must be unix/],
  ] as const) {
    t.throws(() => parseRedisUrl(url), { message }, url);
  }
});

test('the group composes into an actor configuration', (t) => {
  const spec = defineConfig({ ...busVariables }, busConfig);
  t.deepEqual(spec.parse({ REDIS_URL: 'unix:///r.sock', REDIS_USERNAME: 'cli' }), {
    endpoint: { kind: 'unix', path: '/r.sock' },
    username: 'cli',
    passwordFile: null,
    caFile: null,
    prefix: 'weft',
  });
  t.throws(() => spec.parse({ WEFT_REDIS_PREFIX: 'a*' }), {
    message: /REDIS_URL is required; WEFT_REDIS_PREFIX must be 1 to 64/,
  });
});

test('the ACL file turns the default user off and holds no password', (t) => {
  const users = redisUsers(['node-1']);
  const passwords = new Map(users.map(({ name }) => [name, `secret of ${name}`]));
  const text = renderUsersAcl(users, passwords, 'weft');
  t.true(text.startsWith('user default off'));
  t.false(text.includes('secret'));
  t.is(text.trim().split('\n').length, 1 + users.length);
  t.regex(text, /user node-proxy\.node-1 on #[0-9a-f]{64} resetchannels %R~weft:\{mesh\}:state:\*/);
  t.throws(() => renderUsersAcl(users, new Map(), 'weft'), { instanceOf: InvariantError });
});

test('a node name with a wildcard never becomes a key pattern', (t) => {
  t.throws(() => aclRules({ role: 'node-proxy', node: '*' }, 'weft'), {
    instanceOf: InvariantError,
  });
  t.throws(() => aclRules({ role: 'node-agent', node: null }, 'weft'), {
    instanceOf: InvariantError,
  });
});
