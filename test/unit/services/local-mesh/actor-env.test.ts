import { execFileSync } from 'node:child_process';
import test from 'ava';
import { loadActor } from '../../../../services/local-mesh/actors.ts';
import {
  actorDefaults,
  actorEnv,
  contradictions,
  renderShell,
} from '../../../../services/local-mesh/actor-env.ts';
import { hostConfig } from '../../../../lib/actor/host-config.ts';
import { meshPaths } from '../../../../services/local-mesh/mesh-paths.ts';
import { meshRoles, parseRole, roleName } from '../../../../services/local-mesh/roles.ts';
import { planMesh } from '../../../../services/local-mesh/topology.ts';

const plan = planMesh('weft', 2);
const paths = meshPaths('weft', {});

for (const role of meshRoles(plan)) {
  test(`the environment of ${roleName(role)} is one its actor takes`, async (t) => {
    const { config } = await loadActor(role.actor);
    const env = { ...actorDefaults(role), ...actorEnv(role, plan, paths) };
    t.notThrows(() => config.parse(env));
    const known = new Set(Object.keys({ ...hostConfig.variables, ...config.variables }));
    t.deepEqual(
      Object.keys(env).filter((name) => name.startsWith('WEFT_') && !known.has(name)),
      [],
    );
  });
}

test('a mesh on demand has no DNS proxy, and is refused with one', async (t) => {
  const caller = { XDS_ON_DEMAND: 'TRUE' };
  t.deepEqual(contradictions(caller), []);
  for (const name of ['node-1/node-proxy', 'node-1/node-agent']) {
    const role = parseRole(name, plan);
    const { config } = await loadActor(role.actor);
    const env: Record<string, string> = {
      ...actorDefaults(role, caller),
      ...caller,
      ...actorEnv(role, plan, paths),
    };
    t.notThrows(() => config.parse(env), name);
    t.not(env['AMBIENT_DNS_CAPTURE'], 'true');
  }
  t.deepEqual(contradictions({ ...caller, AMBIENT_DNS_CAPTURE: 'false' }), []);
  t.regex(contradictions({ ...caller, AMBIENT_DNS_CAPTURE: 'True' }).join(), /has no DNS proxy/);
  t.deepEqual(contradictions({ AMBIENT_DNS_CAPTURE: 'true' }), []);
});

test('a node-proxy gets what an unmodified ztunnel needs', (t) => {
  const env = actorEnv(parseRole('node-2/node-proxy', plan), plan, paths);
  t.like(env, {
    NODE_NAME: 'node-2',
    INSTANCE_IP: '10.200.0.12',
    XDS_ADDRESS: 'https://10.200.0.2:15012',
    CA_ADDRESS: 'https://10.200.0.3:15012',
    XDS_ROOT_CA: '/run/weft/roots/root-cert.pem',
    CA_ROOT_CA: '/run/weft/roots/root-cert.pem',
    AUTH_TOKEN: '/run/weft/tokens/node-2/istio-token',
    INPOD_UDS: '/run/weft/nodes/node-2/ztunnel.sock',
    PROXY_MODE: 'shared',
    REDIS_USERNAME: 'node-proxy.node-2',
    WEFT_ADMIN_ADDRESS: 'unix:/run/weft/admin/node-proxy.node-2.sock',
  });
});

test('each actor has a Redis user and password of its own', (t) => {
  const users = meshRoles(plan).map((role) => actorEnv(role, plan, paths)['REDIS_USERNAME']);
  const named = users.filter((user) => user !== undefined);
  t.is(new Set(named).size, named.length);
  t.is(named.length, meshRoles(plan).length - 1, 'all but the CA');
});

test('a shell reads back exactly what was rendered', (t) => {
  const env = {
    PLAIN: 'a b',
    QUOTES: `it's "quoted" $HOME \`id\` \\`,
    LINES: 'one\ntwo',
    EMPTY: '',
    LAST: `'`,
  };
  const script = renderShell(parseRole('node-1/node-proxy', plan), plan, env);
  t.true(
    script.startsWith('# node-1/node-proxy: run it inside nsenter --net=/run/netns/weft-node-1\n'),
  );
  const program = `eval "$1"; printf '%s\\0' "$PLAIN" "$QUOTES" "$LINES" "$EMPTY" "$LAST"`;
  const output = execFileSync('sh', ['-c', program, 'sh', script], { encoding: 'utf8' });
  t.deepEqual(output.split('\0').slice(0, -1), Object.values(env));
});

test('roles are named by node and actor', (t) => {
  t.is(roleName(parseRole('ctl/ca', plan)), 'ca');
  t.is(roleName(parseRole('control-plane', plan)), 'control-plane');
  for (const text of [
    '',
    'node-proxy',
    'node-3/node-proxy',
    'node-1/ca',
    'a/b/c',
    'ctl/node-proxy',
  ]) {
    t.throws(() => parseRole(text, plan), { message: /there are ca, control-plane/ }, text);
  }
});
