import test from 'ava';
import { startTestRedis } from '../../support/redis.ts';

/** The commands that each role must not run. The table and work tests run as these users and so cover the allowed ones. */
const ROLES = [
  'control-plane',
  'xds-ingester',
  'policy-evaluator',
  'cli',
  'cert-fetcher.node-1',
  'node-proxy.node-1',
  'node-agent.node-1',
] as const;

const DANGEROUS: readonly (readonly [string, ...string[]])[] = [
  ['KEYS', '*'],
  ['SCAN', '0'],
  ['RANDOMKEY'],
  ['CONFIG', 'GET', 'requirepass'],
  ['CONFIG', 'SET', 'appendonly', 'no'],
  ['FLUSHALL'],
  ['FLUSHDB'],
  ['SWAPDB', '0', '1'],
  ['ACL', 'LIST'],
  ['ACL', 'SETUSER', 'evil', 'on', '+@all'],
  ['SHUTDOWN'],
  ['CLIENT', 'LIST'],
  ['CLIENT', 'KILL', 'TYPE', 'normal'],
  ['SCRIPT', 'FLUSH'],
  ['FUNCTION', 'LIST'],
  ['FUNCTION', 'LOAD', "#!lua name=x\nredis.register_function('x', function() return 1 end)"],
  ['FUNCTION', 'RESTORE', 'x'],
  ['FCALL', 'x', '0'],
  ['CLIENT', 'TRACKING', 'ON', 'BCAST'],
  ['PUBSUB', 'CHANNELS'],
  ['MODULE', 'LIST'],
  ['REPLICAOF', 'example.com', '6379'],
  ['MIGRATE', 'example.com', '6379', 'x', '0', '1'],
  ['MONITOR'],
  ['PSUBSCRIBE', '*'],
  ['SUBSCRIBE', 'anything'],
  ['PUBLISH', 'anything', 'x'],
  ['SORT', 'anything'],
  ['CLUSTER', 'NODES'],
  ['CLUSTER', 'FAILOVER', 'TAKEOVER'],
  ['CLUSTER', 'RESET'],
  ['CLUSTER', 'MEET', '127.0.0.1', '1'],
  ['CLUSTER', 'FORGET', 'x'],
  ['CLUSTER', 'SETSLOT', '0', 'STABLE'],
  ['CLUSTER', 'GETKEYSINSLOT', '0', '1000'],
  ['CLUSTER', 'COUNTKEYSINSLOT', '0'],
  ['FAILOVER'],
  ['PSYNC', '?', '-1'],
  ['BGREWRITEAOF'],
  ['SLOWLOG', 'GET'],
  ['LATENCY', 'DOCTOR'],
  ['SUBSCRIBE', '__redis__:invalidate'],
];

for (const role of ROLES) {
  test(`${role} cannot administer, enumerate or empty Redis`, async (t) => {
    const redis = await startTestRedis(t);
    const client = redis.client(role);
    for (const [command, ...args] of DANGEROUS) {
      await t.throwsAsync(client.call(command, ...args), { message: /NOPERM/ }, command);
    }
    await t.notThrowsAsync(client.info('server'));
  });
}

/** Keys by purpose, relative to the prefix. */
const KEY = {
  addresses: '{mesh}:state:addresses:data',
  authorizations: '{mesh}:state:authorizations:data',
  rejections: '{mesh}:state:rejections:meta',
  removals: '{mesh}:state:removals:data',
  names: '{mesh}:state:names:data',
  accept: '{mesh}:accept:wait',
  accepted: '{mesh}:result:accepted:1',
  programs: '{mesh}:state:programs:data',
  lease: '{mesh}:lease:ingest',
  compile: '{mesh}:compile:wait',
  explain: '{mesh}:explain:wait',
  explained: '{mesh}:result:explain:1',
  enrolments: '{node-1}:state:enrolments:data',
  agentLease: '{node-1}:lease:agent',
  sign: '{node-1}:sign:wait',
  signed: '{node-1}:result:signed:1',
  proxies: '{node-1}:presence:proxies',
  otherEnrolments: '{node-2}:state:enrolments:data',
  otherSign: '{node-2}:sign:wait',
  otherSigned: '{node-2}:result:signed:1',
  otherProxies: '{node-2}:presence:proxies',
  foreign: 'elsewhere',
} as const;

type KeyName = keyof typeof KEY;

/** The keys that the ingester reads and writes. */
const OF_INGESTER: readonly KeyName[] = [
  'addresses',
  'authorizations',
  'rejections',
  'removals',
  'names',
  'lease',
  'accept',
  'accepted',
];

const READS: Record<(typeof ROLES)[number], readonly KeyName[]> = {
  'control-plane': ['enrolments', 'otherEnrolments'],
  'xds-ingester': OF_INGESTER,
  'policy-evaluator': [
    'addresses',
    'authorizations',
    'rejections',
    'removals',
    'names',
    'programs',
    'compile',
    'explain',
    'explained',
  ],
  cli: Object.keys(KEY).filter((name) => name !== 'foreign') as KeyName[],
  'cert-fetcher.node-1': [
    'addresses',
    'authorizations',
    'rejections',
    'removals',
    'names',
    'programs',
    'sign',
    'signed',
  ],
  'node-proxy.node-1': [
    'addresses',
    'authorizations',
    'rejections',
    'removals',
    'names',
    'programs',
    'sign',
    'signed',
    'proxies',
  ],
  'node-agent.node-1': ['enrolments', 'agentLease'],
};

const WRITES: Record<(typeof ROLES)[number], readonly KeyName[]> = {
  'control-plane': [],
  'xds-ingester': OF_INGESTER,
  'policy-evaluator': ['programs', 'compile', 'explain', 'explained'],
  cli: ['explain', 'accept'],
  'cert-fetcher.node-1': ['sign', 'signed'],
  'node-proxy.node-1': ['sign', 'proxies'],
  'node-agent.node-1': ['enrolments', 'agentLease'],
};

test('a node-proxy adds to the names that are wanted, and reads none of them', async (t) => {
  const redis = await startTestRedis(t);
  const key = `${redis.prefix}:{mesh}:wanted`;
  const proxy = redis.client('node-proxy.node-1');
  t.truthy(await proxy.xadd(key, 'MAXLEN', '~', 10, '*', 'wanted', '{}'));
  await t.throwsAsync(proxy.xrange(key, '-', '+'), { message: /NOPERM/ });
  const ingester = redis.client('xds-ingester');
  t.is((await ingester.xrange(key, '-', '+')).length, 1);
  await t.throwsAsync(ingester.del(key), { message: /NOPERM/ });
  for (const role of ['control-plane', 'policy-evaluator', 'node-agent.node-1'] as const) {
    const other = redis.client(role);
    await t.throwsAsync(other.xrange(key, '-', '+'), { message: /NOPERM/ }, role);
    await t.throwsAsync(other.xadd(key, '*', 'wanted', '{}'), { message: /NOPERM/ }, role);
  }
});

/** Channels by purpose, relative to the prefix. */
const CHANNEL = {
  explained: '{mesh}:result:explain:1',
  accepted: '{mesh}:result:accepted:1',
  signed: '{node-1}:result:signed:1',
  otherSigned: '{node-2}:result:signed:1',
} as const;

const CHANNELS: Partial<Record<(typeof ROLES)[number], readonly (keyof typeof CHANNEL)[]>> = {
  'xds-ingester': ['accepted'],
  'policy-evaluator': ['explained'],
  cli: ['explained', 'accepted'],
  'cert-fetcher.node-1': ['signed'],
  'node-proxy.node-1': ['signed'],
};

for (const role of ROLES) {
  test(`${role} speaks and listens on its own channels and no others`, async (t) => {
    const redis = await startTestRedis(t);
    const client = redis.client(role);
    const listener = redis.client(role);
    for (const [name, suffix] of Object.entries(CHANNEL) as [keyof typeof CHANNEL, string][]) {
      const channel = `${redis.prefix}:${suffix}`;
      const own = CHANNELS[role]?.includes(name) === true;
      t.is(await allowed(client.publish(channel, '1')), own, `publish to ${name}`);
      t.is(await allowed(listener.subscribe(channel)), own, `subscribe to ${name}`);
      await t.throwsAsync(client.call('SPUBLISH', channel, '1'), { message: /NOPERM/ });
    }
  });
}

for (const role of ROLES) {
  test(`${role} reaches its own keys and no others`, async (t) => {
    const redis = await startTestRedis(t);
    const client = redis.client(role);
    for (const [name, suffix] of Object.entries(KEY) as [KeyName, string][]) {
      const key = name === 'foreign' ? suffix : `${redis.prefix}:${suffix}`;
      const read = await allowed(client.exists(key));
      t.is(read, READS[role].includes(name), `read ${name}`);
      t.is(await allowed(client.del(key)), WRITES[role].includes(name), `write ${name}`);
      const scripted = client.eval("return redis.call('DEL', KEYS[1])", 1, key);
      t.is(await allowed(scripted), WRITES[role].includes(name), `write ${name} from a script`);
    }
  });
}

test('nobody gets in without a password, nor as the default user', async (t) => {
  const redis = await startTestRedis(t);
  const client = redis.client();
  await t.notThrowsAsync(client.ping());
  const stranger = client.duplicate({ username: '', password: '', retryStrategy: null });
  stranger.on('error', () => undefined);
  await t.throwsAsync(stranger.get('x'));
  stranger.disconnect();
  const wrong = client.duplicate({ password: 'wrong', retryStrategy: null });
  wrong.on('error', () => undefined);
  await t.throwsAsync(wrong.get('x'));
  wrong.disconnect();
});

async function allowed(command: Promise<unknown>): Promise<boolean> {
  try {
    await command;
    return true;
  } catch (error) {
    if (error instanceof Error && error.message.includes('NOPERM')) return false;
    if (error instanceof Error && /permission|No permissions/i.test(error.message)) return false;
    throw error;
  }
}
