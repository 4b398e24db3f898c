import { test } from './mesh.ts';
import { until } from '../../../support/until.ts';

const ALLOW_CLIENT = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: only-client, namespace: demo }
spec:
  selector: { matchLabels: { app: api } }
  action: ALLOW
  rules:
    - from: [{ source: { principals: [cluster.local/ns/demo/sa/client] } }]
`;
const DENY_CLIENT = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: { name: no-client-at-db, namespace: demo }
spec:
  selector: { matchLabels: { app: db } }
  action: DENY
  rules:
    - from: [{ source: { principals: [cluster.local/ns/demo/sa/client] } }]
`;
const STRICT = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: { name: default, namespace: demo }
spec: { mtls: { mode: STRICT } }
`;

interface Explanation {
  readonly allowed: boolean;
  readonly policy: string | null;
  readonly rule: number | null;
  readonly path: string;
}

// spec: policy.md §6
test('ALLOW by service account lets one client in and refuses the other, naming why', async (t, mesh) => {
  t.is((await mesh.curl('demo/web-1', 'http://api/')).code, 0);
  t.is((await mesh.apply(ALLOW_CLIENT)).code, 0);
  await until(async () => (await mesh.curl('demo/web-1', 'http://api/')).code !== 0, {
    what: 'the policy to refuse web',
  });
  t.is((await mesh.curl('demo/client', 'http://api/')).code, 0);
  const refused = (await mesh.log('node-proxy', 'node-2')).filter(
    (line) =>
      line['scope'] === 'access' &&
      line['src.identity'] === 'spiffe://cluster.local/ns/demo/sa/web' &&
      'error' in line,
  );
  t.true(refused.length > 0);
  t.regex(String(refused[0]?.['error']), /allow|polic/i);
  t.regex(
    await mesh.stats('node-2'),
    /istio_tcp_connections_failed_total\{.*response_flags="DENY"/,
  );
});

test('explain names verdict, policy and path for pods and services', async (t, mesh) => {
  const explain = (from: string, to: string) =>
    mesh.json<Explanation>('policy', 'explain', '--from', from, '--to', to);
  const refused = await explain('demo/web-1', 'demo/api:80');
  t.false(refused.allowed);
  t.is(refused.path, 'hbone');
  const allowed = await explain('demo/client', 'demo/api:80');
  t.like(allowed, { allowed: true, policy: 'demo/only-client', rule: 0, path: 'hbone' });
  t.is((await explain('demo/client', 'plain/outsider:8080')).path, 'passthrough');
});

test('weft get policies lists the policy and its state', async (t, mesh) => {
  const policies = await mesh.json<{ namespace: string; name: string; action: string }[]>(
    'get',
    'policies',
  );
  t.true(
    policies.some(
      (policy) =>
        policy.namespace === 'demo' && policy.name === 'only-client' && policy.action === 'ALLOW',
    ),
  );
});

test('deleting the policy lets the refused client in again', async (t, mesh) => {
  t.is((await mesh.delete(ALLOW_CLIENT)).code, 0);
  await until(async () => (await mesh.curl('demo/web-1', 'http://api/')).code === 0, {
    what: 'web to be let in',
  });
});

// spec: policy.md §7
test('adding a DENY cuts a live connection, and the log names the policy', async (t, mesh) => {
  const held = mesh.background(
    'demo/client',
    'bash',
    '-c',
    'exec 3<>/dev/tcp/db/5432; cat <&3; echo ended',
  );
  await until(() => held.output().length > 0, { what: 'the connection to carry bytes' });
  t.is((await mesh.apply(DENY_CLIENT)).code, 0);
  await until(() => held.output().includes('ended'), { what: 'the connection to be cut' });
  await held.exit;
  await until(
    async () =>
      (await mesh.log('node-proxy', 'node-2')).some(
        (line) =>
          line['scope'] === 'access' && String(line['error']).includes('demo/no-client-at-db'),
      ),
    { what: 'the access line to name the policy' },
  );
  t.not(
    (
      await mesh.exec(
        'demo/client',
        'bash',
        '-c',
        'exec 3<>/dev/tcp/db/5432; IFS= read -r -t 30 line <&3',
      )
    ).code,
    0,
  );
  t.is((await mesh.delete(DENY_CLIENT)).code, 0);
  await until(
    async () =>
      (
        await mesh.exec(
          'demo/client',
          'bash',
          '-c',
          'exec 3<>/dev/tcp/db/5432; IFS= read -r -t 30 line <&3',
        )
      ).code === 0,
    { what: 'the database to be reachable again' },
  );
});

// spec: policy.md §5
test('STRICT refuses plaintext from outside the mesh and keeps letting the mesh in', async (t, mesh) => {
  const web = await mesh.pod('demo', 'web-1');
  t.is((await mesh.curl('plain/outsider', `http://${web.ip}:8080/`)).code, 0);
  t.is((await mesh.apply(STRICT)).code, 0);
  await until(
    async () => (await mesh.curl('plain/outsider', `http://${web.ip}:8080/`)).code !== 0,
    {
      what: 'plaintext to be refused',
    },
  );
  t.is((await mesh.curl('demo/client', 'http://web/')).code, 0);
  t.is((await mesh.delete(STRICT)).code, 0);
  await until(
    async () => (await mesh.curl('plain/outsider', `http://${web.ip}:8080/`)).code === 0,
    {
      what: 'plaintext to be let in again',
    },
  );
});
