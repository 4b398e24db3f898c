/** The token of the CNI plugin's helper: what it may do, what ends it, and how the agent keeps it fresh. */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { KubernetesClient, KubernetesRequest } from '../../lib/kubernetes/client.ts';
import { readKubeconfig } from '../../lib/kubernetes/connection.ts';
import { HelperToken } from '../../services/node-agent/cni/helper-token.ts';
import type { Proof } from '../../services/node-agent/proof/node-proof.ts';
import { keptLog } from '../support/actor-context.ts';
import type { LogLine } from '../support/actor-context.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/until.ts';
import type { Cluster } from './support/cluster.ts';
import { agentNode, agentOf } from './support/node-agent.ts';
import type { AgentNode } from './support/node-agent.ts';
import { pod } from './support/objects.ts';
import { addInstalled, OWN_LIST } from './support/plugin-add.ts';
import { underRole, usedRights } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const AMBIENT = { 'istio.io/dataplane-mode': 'ambient' };
const AGENT = 'weft-node-agent';
const WEEK_S = 604_800;
const HOUR_MS = 3_600_000;

interface Claims {
  readonly exp: number;
  readonly iat: number;
  readonly 'kubernetes.io': {
    readonly node?: { readonly name: string };
    readonly pod?: unknown;
  };
}

function claimsOf(token: string): Claims {
  return JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8')) as Claims;
}

/** The token in the installed kubeconfig. */
async function installedToken({ cni }: AgentNode): Promise<string> {
  const { token } = await readKubeconfig(join(cni.runDir, 'weft-cni-kubeconfig'));
  if (token?.kind !== 'text') throw new Error('the kubeconfig holds no token');
  return token.text;
}

/** Waits until the API server takes the token for nobody's. */
async function ended(cluster: Cluster, token: string, what: string): Promise<void> {
  const client = cluster.client({ token });
  const refused = async (): Promise<boolean> => {
    try {
      await client.get('/version');
      return false;
    } catch (error) {
      return error instanceof MeshError && error.detail['status'] === 401;
    }
  };
  await until(refused, { what: `${what} has ended` });
}

/** The rules of an account in a namespace, as the API server's authorizer tells. */
async function rulesOf(cluster: Cluster, token: string, namespace: string): Promise<string[]> {
  const answer = (await cluster
    .client({ token })
    .create('/apis/authorization.k8s.io/v1/selfsubjectrulesreviews', {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectRulesReview',
      spec: { namespace },
    })) as { readonly status: { readonly resourceRules: readonly unknown[] } };
  return answer.status.resourceRules.map((rule) => JSON.stringify(rule));
}

/** A token that is kept under the agent's role, by a clock that the test moves. */
interface KeptToken {
  readonly token: HelperToken;
  readonly clock: FakeClock;
  readonly lines: readonly LogLine[];
}

/** Waits until the token is fresh. An attempt that fails, as on a busy machine, is followed by the next. */
async function renewed({ token, clock }: KeptToken): Promise<void> {
  await until(
    async () => {
      if (clock.nextInMs === HOUR_MS) return true;
      if (token.problem !== null) await clock.advance(clock.nextInMs ?? 0);
      return false;
    },
    { what: 'the next renewal is due' },
  );
}

async function keptToken(
  t: ExecutionContext,
  cluster: Cluster,
  system: string,
  {
    node,
    change = (request) => request,
  }: {
    readonly node: string;
    /** Changes a request as an API server with other limits would. */
    readonly change?: (request: KubernetesRequest) => KubernetesRequest;
  },
): Promise<KeptToken> {
  const { token: agentToken } = await underRole(cluster, AGENT, { namespace: system });
  await underRole(cluster, 'weft-cni', { namespace: system });
  await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name: node } });
  const client = cluster.client({ token: agentToken });
  const changed: Pick<KubernetesClient, 'request'> = {
    request: async (request) => client.request(change(request)),
  };
  const clock = new FakeClock();
  const { log, lines } = keptLog('node-agent');
  const token = new HelperToken(
    { namespace: system, node },
    {
      client: changed,
      clock,
      log,
      onRenewed: () => undefined,
      supervise: (work) => void work.catch((error: unknown) => t.fail(String(error))),
    },
  );
  t.teardown(() => token.close());
  await token.start();
  return { token, clock, lines };
}

function bodyOf({ body }: KubernetesRequest): { readonly spec: Readonly<Record<string, unknown>> } {
  return body as { readonly spec: Readonly<Record<string, unknown>> };
}

await kubernetesSuite('cni helper token', (test) => {
  test('pods are judged after the pod of the agent is gone, by an account that may do nothing else', async (t, cluster) => {
    const system = await cluster.namespace('system');
    const account = await underRole(cluster, AGENT, { namespace: system });
    const agentPod = pod(system, 'agent', { ip: '10.0.0.9', account: AGENT });
    const [stored] = await cluster.apply(agentPod);
    const { name, uid } = present(stored, 'the pod is stored').metadata;
    const own = await cluster.token(system, AGENT, { pod: { name, uid } });
    const node = await agentNode(t, cluster, {
      cni: true,
      account: { system, account: { ...account, token: own } },
    });
    const agent = await agentOf(t, node);
    await until(() => agent.context.readiness.pending().length === 0, { what: 'readiness' });
    const { findings } = (await agent.ask('GET', '/proof')) as Proof;
    t.false(findings.some(({ cause }) => cause === 'CNI helper without token'));
    const file = join(node.cni.runDir, 'weft-cni-kubeconfig');
    t.is((await stat(file)).mode & 0o777, 0o600);
    t.false((await readFile(file, 'utf8')).includes(own));
    await agent.stop();
    await cluster.delete(agentPod);
    await ended(cluster, own, "the agent's own token");

    const plain = await cluster.namespace('plain');
    const member = await cluster.namespace('member', AMBIENT);
    await cluster.apply(
      pod(plain, 'web', { ip: '10.0.0.1' }),
      pod(member, 'web', { ip: '10.0.0.2' }),
    );
    const outside = await addInstalled(node, `${plain}/web`, '/run/netns/none');
    t.is(outside.code, 0, outside.stdout);
    const inside = await addInstalled(node, `${member}/web`, '/run/netns/none');
    t.is(inside.code, 1);
    t.regex(String(inside.answer?.['msg']), /belongs to the mesh \(selected\) and must wait/);

    const helper = await underRole(cluster, 'weft-cni', { namespace: system });
    const { used, refused } = await usedRights(cluster, helper);
    t.deepEqual(refused, []);
    t.deepEqual([...used].toSorted(), ['get /namespaces', 'get /pods']);
    t.deepEqual([...helper.rights].toSorted(), ['get /namespaces', 'get /pods']);
    const token = await installedToken(node);
    const bare = new Set(await rulesOf(cluster, await cluster.token(system, 'bare'), plain));
    const rules = (await rulesOf(cluster, token, plain)).filter((rule) => !bare.has(rule));
    t.deepEqual(
      rules.map((rule): unknown => JSON.parse(rule)),
      [{ verbs: ['get'], apiGroups: [''], resources: ['pods', 'namespaces'] }],
    );
    // It ends with the node, so that nobody can use it who has the disk afterwards.
    const claims = claimsOf(token);
    t.is(claims.exp - claims.iat, WEEK_S);
    t.is(claims['kubernetes.io'].node?.name, node.node);
    t.is(claims['kubernetes.io'].pod, undefined);
    await cluster.delete({ apiVersion: 'v1', kind: 'Node', metadata: { name: node.node } });
    await ended(cluster, token, "the helper's token");
  });

  test('an agent may ask for no other token', async (t, cluster) => {
    const system = await cluster.namespace('system');
    const { token } = await underRole(cluster, AGENT, { namespace: system });
    const elsewhere = await cluster.namespace('elsewhere');
    for (const place of [elsewhere, system]) await cluster.token(place, 'weft-ca');
    await cluster.token(elsewhere, 'weft-cni');
    const client = cluster.client({ token });
    for (const path of [
      `${system}/serviceaccounts/weft-ca`,
      `${elsewhere}/serviceaccounts/weft-ca`,
      `${elsewhere}/serviceaccounts/weft-cni`,
    ]) {
      const body = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} };
      const error = await t.throwsAsync(
        client.create(`/api/v1/namespaces/${path}/token`, body),
        { instanceOf: MeshError },
        path,
      );
      t.is(error?.detail['status'], 403, path);
    }
  });

  test('the token is renewed each hour, and one in force stays where that is refused', async (t, cluster) => {
    const system = await cluster.namespace('system');
    const kept = await keptToken(t, cluster, system, { node: system });
    const { token, clock, lines } = kept;
    const first = token.read();
    await clock.advance(HOUR_MS - 1);
    t.is(token.read(), first);
    await clock.advance(1);
    const second = await until(() => token.read() !== first && token.read(), {
      what: 'the second token',
    });
    t.is(token.problem, null);
    await renewed(kept);

    await cluster.delete({
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'RoleBinding',
      metadata: { name: 'weft-node-agent-cni', namespace: system },
    });
    await until(
      async () => {
        await clock.advance(clock.nextInMs ?? 0);
        return token.problem;
      },
      { what: 'a renewal is refused' },
    );
    const told = present(
      lines.find(({ message }) => message === 'cni.token-not-renewed'),
      'the refusal is told',
    );
    t.is(told['level'], 'error');
    t.regex(
      String(told['problem']),
      /helper: POST .*serviceaccounts "weft-cni" is forbidden.*come with the chart/,
    );
    t.true((told['leftMs'] as number) > (WEEK_S * 1_000) / 2);
    const held = token.read();
    t.not(held, first);
    await t.notThrowsAsync(cluster.client({ token: held }).get('/version'));

    await underRole(cluster, AGENT, { namespace: system });
    await until(
      async () => {
        await clock.advance(clock.nextInMs ?? 0);
        return token.problem === null;
      },
      { what: 'the token is renewed again' },
    );
    t.not(token.read(), held);
    t.not(token.read(), second);

    await renewed(kept);
    await cluster.delete({
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: 'weft-cni', namespace: system },
    });
    await clock.advance(HOUR_MS);
    await until(() => token.problem, { what: 'the account is missed' });
    t.regex(token.problem ?? '', /serviceaccounts "weft-cni" not found.*come with the chart/);
    // The answers come by the machine's own time, so none comes while the clock moves.
    await clock.advance(WEEK_S * 1_000);
    t.throws(() => token.read(), { code: 'KUBERNETES_REFUSED', message: /weft-cni/ });
  });

  test('a life that the API server shortens is renewed at its half', async (t, cluster) => {
    const system = await cluster.namespace('system');
    const { token, clock } = await keptToken(t, cluster, system, {
      node: system,
      change: (request) => {
        const body = bodyOf(request);
        return { ...request, body: { ...body, spec: { ...body.spec, expirationSeconds: 3_600 } } };
      },
    });
    const { exp, iat } = claimsOf(token.read());
    t.is(exp - iat, 3_600);
    t.is(clock.nextInMs, HOUR_MS / 2);
  });

  test('an API server before 1.31 gives a token that no node ends, which is told once', async (t, cluster) => {
    const system = await cluster.namespace('system');
    const { token, clock, lines } = await keptToken(t, cluster, system, {
      node: system,
      change: (request) => {
        if (bodyOf(request).spec['boundObjectRef'] === undefined) return request;
        throw new MeshError('KUBERNETES_INVALID', 'cannot bind token to a Node object');
      },
    });
    const first = token.read();
    t.is(claimsOf(first)['kubernetes.io'].node, undefined);
    await clock.advance(HOUR_MS);
    await until(() => token.read() !== first, { what: 'the second token' });
    const told = lines.filter(({ message }) => message === 'cni.token-not-bound');
    t.is(told.length, 1);
    t.regex(String(told[0]?.['problem']), /cannot bind token to a Node object/);
  });

  test('without the right the agent installs the plugin, is not ready, and says why until the right comes', async (t, cluster) => {
    const node = await agentNode(t, cluster, { cni: true });
    const { system } = node;
    await cluster.delete({
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: 'weft-cni', namespace: system },
    });
    const agent = await agentOf(t, node);
    await until(() => agent.context.readiness.pending().join() === 'cni-install', {
      what: 'all but the installation',
    });
    t.true((await readFile(join(node.cni.netDir, OWN_LIST), 'utf8')).includes('weft-cni'));
    await t.throwsAsync(stat(join(node.cni.runDir, 'weft-cni-kubeconfig')), { code: 'ENOENT' });
    const { findings } = (await agent.ask('GET', '/proof')) as Proof;
    const found = findings.find(({ cause }) => cause === 'CNI helper without token');
    t.regex(found?.detail ?? '', /serviceaccounts "weft-cni" not found/);
    t.true(agent.lines.some(({ message }) => message === 'cni.not-installed'));
    await underRole(cluster, 'weft-cni', { namespace: system });
    await until(() => agent.context.readiness.pending().length === 0, { what: 'readiness' });
    t.regex(await installedToken(node), /^ey/);
    t.deepEqual(agent.failures, []);
  });
});
