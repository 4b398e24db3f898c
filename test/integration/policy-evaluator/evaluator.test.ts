import { once } from 'node:events';
import { randomBytes } from 'node:crypto';
import test from 'ava';
import { EXPLAIN_BOARD } from '../../../lib/bus/catalog.ts';
import type { ExplainRequest, ExplainResult } from '../../../lib/policy/explain.ts';
import { explainResultSchema } from '../../../lib/policy/explain.ts';
import { compileProgram } from '../../../lib/policy/compile.ts';
import { PolicyStore } from '../../../lib/policy/policy-store.ts';
import { decodeProgram } from '../../../lib/policy/program-codec.ts';
import { EMPTY_SET_ID } from '../../../lib/policy/set-id.ts';
import type { Authorization } from '../../../lib/policy/model.ts';
import {
  decodeAuthorization,
  encodeAuthorization,
} from '../../../lib/xds/resources/authorization.ts';
import { AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import { createEvaluatorKit } from '../../support/evaluator-kit.ts';
import type { EvaluatorKit } from '../../support/evaluator-kit.ts';
import { service, vip, workload } from '../../support/mesh-kit.ts';
import { exact, policy } from '../../support/policy-kit.ts';
import { until } from '../../support/until.ts';

const client = workload({
  uid: 'Kubernetes//Pod/demo/client',
  serviceAccount: 'client',
  addresses: ['10.201.0.2'],
});
const api = workload({
  uid: 'Kubernetes//Pod/demo/api-1',
  serviceAccount: 'api',
  addresses: ['10.201.16.2'],
  node: 'node-2',
  services: { 'demo/api.demo.svc.cluster.local': { 80: 8080 } },
  authorizationPolicies: ['demo/only-client'],
});
const apiService = service({
  hostname: 'api.demo.svc.cluster.local',
  addresses: [vip('10.96.0.7')],
});
const onlyClient: Authorization = policy(
  'ALLOW',
  [[[{ principals: [exact('cluster.local/ns/demo/sa/client')] }]]],
  { name: 'only-client', namespace: 'demo', scope: 'WORKLOAD_SELECTOR' },
);

/** Returns the id of the set that a workload with these policies uses. */
function setOf(policies: Readonly<Record<string, Authorization>>): string {
  const store = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
  for (const [key, item] of Object.entries(policies)) store.apply(key, encodeAuthorization(item));
  return store.setOf(Object.keys(policies)).setId;
}

const API_SET = setOf({ 'demo/only-client': onlyClient });

async function published(kit: EvaluatorKit, setId: string): Promise<void> {
  await until(() => kit.programs.rows.has(setId), {
    what: `program ${setId.slice(0, 8)}`,
    timeoutMs: 30_000,
  });
}

async function ask(kit: EvaluatorKit, body: ExplainRequest): Promise<ExplainResult | null> {
  const id = randomBytes(8).toString('hex');
  await kit.explains.add(id, body);
  return kit.bus.results(EXPLAIN_BOARD, 'mesh', explainResultSchema).wait(id, 60_000);
}

test.serial('the sets in use are compiled, and compiled anew when a policy changes', async (t) => {
  const kit = await createEvaluatorKit(t);
  await kit.writePolicies({ 'demo/only-client': onlyClient });
  await kit.writeMesh(client, api, apiService);
  const evaluator = await kit.start();
  await evaluator.ready();
  await published(kit, API_SET);
  await published(kit, EMPTY_SET_ID);
  const row = Buffer.from(kit.programs.rows.get(API_SET) ?? '');
  t.deepEqual(
    decodeProgram(API_SET, row),
    compileProgram(API_SET, [{ key: 'demo/only-client', policy: onlyClient }]),
  );

  const denyAll = policy('DENY', [[]], { name: 'deny-all', namespace: 'demo' });
  await kit.writePolicies({ 'demo/deny-all': denyAll });
  await published(kit, setOf({ 'demo/only-client': onlyClient, 'demo/deny-all': denyAll }));
  await published(kit, setOf({ 'demo/deny-all': denyAll }));
  // The evaluator receives its own writes like every other reader.
  const { sets, unused } = await until(
    async () => {
      const { body } = await evaluator.get('/policy-evaluator/sets');
      const seen = JSON.parse(body) as {
        sets: { policies: string[]; workloads: number; state: string }[];
        unused: string[];
      };
      return seen.sets.every(({ state }) => state === 'compiled') ? seen : null;
    },
    { what: 'its programs to be its own' },
  );
  t.deepEqual(
    sets
      .map(({ policies, workloads, state }) => [policies.length, workloads, state])
      .sort((left, right) => Number(left[0]) - Number(right[0])),
    [
      [1, 1, 'compiled'],
      [2, 1, 'compiled'],
    ],
  );
  t.true(unused.includes(API_SET), 'kept for a while after its last use');
  const metrics = (await evaluator.get('/metrics')).body;
  t.regex(metrics, /weft_policy_sets\{[^}]*\} 2/);
  t.regex(metrics, /weft_policy_workloads\{[^}]*\} 2/);
});

test.serial('killed in the middle of its work and started again, it converges', async (t) => {
  const kit = await createEvaluatorKit(t);
  const policies = Object.fromEntries(
    Array.from({ length: 60 }, (_, index) => [
      `demo/p-${index}`,
      { ...onlyClient, name: `p-${index}` },
    ]),
  );
  const pods = Object.keys(policies).map((key, index) =>
    workload({ uid: `c//Pod/demo/w-${index}`, authorizationPolicies: [key] }),
  );
  await kit.writePolicies(policies);
  await kit.writeMesh(...pods);
  const first = await kit.start();
  await until(() => kit.programs.rows.size >= 5, { what: 'some programs', timeoutMs: 30_000 });
  await first.kill();
  await kit.start();
  for (const [key, item] of Object.entries(policies)) await published(kit, setOf({ [key]: item }));
  await until(
    async () => {
      const [counts] = (await kit.bus.queueCounts(['mesh'])).filter(
        ({ name }) => name === 'compile',
      );
      return counts?.waiting === 0 && counts.active === 0 && counts.dead === 0;
    },
    { what: 'no job left', timeoutMs: 30_000 },
  );
  t.true(kit.programs.rows.size >= 60);
});

test.serial('two evaluators share the queue, and each set is compiled', async (t) => {
  const kit = await createEvaluatorKit(t);
  const both = await Promise.all([kit.start(), kit.start()]);
  await Promise.all(both.map((evaluator) => evaluator.ready()));
  const compiledBy = async (): Promise<number[]> => {
    const texts = await Promise.all(both.map((evaluator) => evaluator.get('/metrics')));
    return texts.map(({ body }) =>
      Number(
        /weft_policy_compiles_total\{[^}]*outcome="compiled"[^}]*\} (\d+)/.exec(body)?.[1] ?? 0,
      ),
    );
  };
  let round = 0;
  await until(
    async () => {
      const policies = Object.fromEntries(
        Array.from({ length: 20 }, (_, index) => {
          const name = `r${round}-${index}`;
          return [`demo/${name}`, { ...onlyClient, name }];
        }),
      );
      round += 1;
      await kit.writePolicies(policies);
      await kit.writeMesh(
        ...Object.keys(policies).map((key) =>
          workload({ uid: `c//Pod/${key}`, authorizationPolicies: [key] }),
        ),
      );
      for (const [key, item] of Object.entries(policies)) {
        await published(kit, setOf({ [key]: item }));
      }
      return (await compiledBy()).every((count) => count > 0);
    },
    { what: 'both to have compiled something', timeoutMs: 60_000 },
  );
  t.pass();
});

test.serial('explain is answered with verdict, policy, path and next hop', async (t) => {
  const kit = await createEvaluatorKit(t);
  await kit.writePolicies({ 'demo/only-client': onlyClient });
  await kit.writeMesh(client, api, apiService);
  const evaluator = await kit.start();
  await evaluator.ready();
  const to = { namespace: 'demo', name: 'api', port: 80 };
  t.like(await ask(kit, { from: { namespace: 'demo', pod: 'client' }, to }), {
    allowed: true,
    policy: 'demo/only-client',
    rule: 0,
    path: 'hbone',
    from: 'spiffe://cluster.local/ns/demo/sa/client',
    to: '10.201.16.2:8080',
    nextHop: '10.201.16.2:15008',
    workload: api.uid,
    service: 'demo/api.demo.svc.cluster.local',
  });
  t.like(await ask(kit, { from: { namespace: 'demo', pod: 'api-1' }, to }), {
    allowed: false,
    reason: 'not-allowed',
    path: 'hbone',
  });
  t.like(await ask(kit, { from: { namespace: 'demo', pod: 'nobody' }, to }), {
    allowed: false,
    reason: 'unknown-source',
    path: 'none',
  });
});

test.serial(
  'an unreadable row is counted and named, what was known stays, and its namespace is refused otherwise',
  async (t) => {
    const kit = await createEvaluatorKit(t);
    await kit.writePolicies({ 'demo/only-client': onlyClient });
    await kit.writeMesh(client, api, apiService);
    const evaluator = await kit.start();
    await evaluator.ready();
    await published(kit, API_SET);
    const garbage = randomBytes(40);
    // NAMESPACE scope with the namespace "plain", then unreadable bytes.
    const plainOnly = Buffer.concat([Buffer.from('\x12\x05plain\x18\x01'), Buffer.from([255])]);
    await kit.write('authorizations', { 'demo/only-client': garbage, 'plain/bad': plainOnly });
    await kit.write('addresses', { 'c//Pod/demo/bad': garbage });
    await kit.write('rejections', {
      [`${AUTHORIZATION_TYPE}/plain/worse`]: Buffer.from('not json'),
    });
    await until(
      async () => {
        const { body } = await evaluator.get('/metrics');
        return (
          /weft_policy_unreadable_rows_total\{[^}]*table="authorizations"[^}]*\} 2/.test(body) &&
          /weft_policy_unreadable_rows_total\{[^}]*table="addresses"[^}]*\} 1/.test(body) &&
          /weft_policy_rejected\{[^}]*\} 3/.test(body)
        );
      },
      { what: 'the rows to be counted' },
    );
    for (const key of ['demo/only-client', 'plain/bad', 'c//Pod/demo/bad']) {
      await until(() => evaluator.output().includes(`"key":"${key}"`), {
        what: `a line of ${key}`,
      });
    }
    const to = { namespace: 'demo', name: 'api', port: 80 };
    t.like(await ask(kit, { from: { namespace: 'demo', pod: 'client' }, to }), {
      allowed: true,
      policy: 'demo/only-client',
    });
    const guarded = workload({
      uid: 'c//Pod/plain/web',
      namespace: 'plain',
      addresses: ['10.201.16.9'],
    });
    await kit.writeMesh(guarded);
    await until(
      async () =>
        (
          await ask(kit, {
            from: { namespace: 'demo', pod: 'client' },
            to: { namespace: 'plain', name: 'web', port: 80 },
          })
        )?.reason === 'undecodable-policy',
      { what: 'the namespace to be refused' },
    );
    const name = 'istio-system/x';
    const rejected = { type: AUTHORIZATION_TYPE, name, reason: 'bad port', reach: '', at: '' };
    await kit.write('rejections', {
      [`${AUTHORIZATION_TYPE}/${name}`]: Buffer.from(JSON.stringify(rejected)),
    });
    await until(
      async () =>
        (await ask(kit, { from: { namespace: 'demo', pod: 'client' }, to }))?.reason ===
        'undecodable-policy',
      { what: 'every namespace to be refused' },
    );
    t.is(evaluator.child.exitCode, null);
  },
);

test.serial('Redis lost with all its data: programs are back once the mesh state is', async (t) => {
  const kit = await createEvaluatorKit(t);
  await kit.writePolicies({ 'demo/only-client': onlyClient });
  await kit.writeMesh(client, api, apiService);
  const evaluator = await kit.start();
  await published(kit, API_SET);
  const copies = kit.programs.copies;
  await kit.redis.kill();
  await kit.redis.start({ empty: true });
  await until(() => kit.bus.connected, { what: 'Redis' });
  await until(
    async () => {
      await kit.replaceAll();
      return true;
    },
    { what: 'the state to be written again', timeoutMs: 30_000 },
  );
  await until(() => kit.programs.copies > copies && kit.programs.rows.has(API_SET), {
    what: 'the programs',
    timeoutMs: 60_000,
  });
  t.is(evaluator.child.exitCode, null);
});

test.serial('SIGTERM ends it cleanly, with Redis there and with Redis hanging', async (t) => {
  const kit = await createEvaluatorKit(t);
  const first = await kit.start();
  await first.ready();
  const second = await kit.start();
  await second.ready();
  first.child.kill('SIGTERM');
  const [code] = (await once(first.child, 'exit')) as [number | null];
  t.is(code, 0, first.output());
  kit.redis.pause();
  second.child.kill('SIGTERM');
  const [hanging] = (await once(second.child, 'exit')) as [number | null];
  t.is(hanging, 0, second.output());
});
