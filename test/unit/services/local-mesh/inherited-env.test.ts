import test from 'ava';
import { drainDeadlineOf } from '../../../../services/local-mesh/actor-process.ts';
import { hostConfig } from '../../../../lib/actor/host-config.ts';
import { ACTORS, loadActor } from '../../../../services/local-mesh/actors.ts';
import { checkEnvironment } from '../../../../services/local-mesh/requirements.ts';
import {
  DECIDED_HERE,
  SETTINGS,
  inheritedEnv,
} from '../../../../services/local-mesh/inherited-env.ts';

const NONE: ReadonlySet<string> = new Set();

test('settings and what any process needs are passed on, the rest of the caller is not', (t) => {
  t.deepEqual(
    inheritedEnv(
      {
        PATH: '/bin',
        LC_ALL: 'C',
        NODE_OPTIONS: '--x',
        SECRET_TTL: '30s',
        AWS_SECRET_ACCESS_KEY: 'secret',
        https_proxy: 'http://proxy',
        CA_HEADER_TOKEN: 'secret',
        ISTIO_META_CLUSTER_ID: 'other',
        TZ: undefined,
      },
      NONE,
    ),
    { PATH: '/bin', LC_ALL: 'C', NODE_OPTIONS: '--x', SECRET_TTL: '30s' },
  );
});

test('what says who a process is and whom it talks to is decided by the mesh alone', (t) => {
  const caller = Object.fromEntries([...DECIDED_HERE].map((name) => [name, 'x']));
  t.deepEqual(inheritedEnv(caller, DECIDED_HERE), {});
});

test('a variable of Weft goes to the actors that read it', (t) => {
  const caller = { WEFT_ACCESS_LOG: 'errors', WEFT_HOLD_REMOVALS: '0s', WEFT_MESH: 'x' };
  t.deepEqual(inheritedEnv(caller, new Set(['WEFT_ACCESS_LOG'])), { WEFT_ACCESS_LOG: 'errors' });
  t.deepEqual(inheritedEnv(caller, NONE), {});
});

test('of every variable that an actor reads it is decided whether it is inherited', async (t) => {
  const definitions = await Promise.all(ACTORS.map(loadActor));
  const names = [hostConfig, ...definitions.map(({ config }) => config)].flatMap((spec) =>
    Object.keys(spec.variables),
  );
  const upstream = new Set(names.filter((name) => !name.startsWith('WEFT_')));
  t.deepEqual(
    [...upstream].filter((name) => SETTINGS.has(name) === DECIDED_HERE.has(name)),
    [],
  );
  t.deepEqual(
    [...SETTINGS].filter((name) => !upstream.has(name)),
    [],
  );
});

test('every misspelt variable of Weft is named', async (t) => {
  await t.notThrowsAsync(checkEnvironment({ WEFT_MESH: 'x', WEFT_RUN_DIR: '/run/x', OTHER: '1' }));
  await t.notThrowsAsync(checkEnvironment({ WEFT_ACCESS_LOG: 'x', WEFT_LISTEN: 'x' }));
  const error = await t.throwsAsync(checkEnvironment({ WEFT_ACCES_LOG: '1', WEFT_QZXJW: '1' }), {
    code: 'CONFIG_INVALID',
  });
  t.true(error.message.includes('WEFT_ACCES_LOG is unknown, did you mean WEFT_ACCESS_LOG?'));
  t.true(error.message.includes('WEFT_QZXJW is unknown'));
});

test('connections of a replaced proxy last as long as they last, unless the caller sets a deadline', (t) => {
  t.is(drainDeadlineOf('node-proxy', {}), null);
  t.is(drainDeadlineOf('node-proxy', { CONNECTION_TERMINATION_DEADLINE: '600s' }), 600_000);
  t.is(drainDeadlineOf('node-proxy', { TERMINATION_GRACE_PERIOD_SECONDS: '30' }), 25_000);
  t.is(drainDeadlineOf('cert-fetcher', {}), 5_000);
});
