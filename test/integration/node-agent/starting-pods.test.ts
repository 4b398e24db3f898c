/** Pods that start, before an API server that lags or hangs: a real one cannot be made to tell its watches nothing. */
import { rm } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { reflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import { MetricRegistry } from '../../../lib/metrics/registry.ts';
import { AddServer } from '../../../services/node-agent/cni/add-server.ts';
import { DEFAULT_SELECTORS } from '../../../services/node-agent/eligibility.ts';
import { KubernetesPods } from '../../../services/node-agent/kubernetes/kubernetes-pods.ts';
import { ask } from '../../../services/local-mesh/unix-http.ts';
import type { HttpAnswer } from '../../../services/local-mesh/unix-http.ts';
import { keptLog } from '../../support/actor-context.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { until } from '../../support/until.ts';
import { clientOf } from '../../support/answering-server.ts';

const NODE = 'node-1';
const EVENT = {
  Netns: '/proc/self/ns/net',
  PodName: 'web-0',
  PodNamespace: 'demo',
  AgentDecides: true,
};

type ApiPod = Readonly<Record<string, unknown>>;

/** An API server with one pod, `demo/web-0`. */
class OnePodApi {
  /** The pod that a question is answered with; null = the question gets no answer. */
  stored: ApiPod | null;
  /** Questions for the pod so far, and how many of them their asker has given up. */
  questions = 0;
  abandoned = 0;
  readonly #listed: ApiPod;
  #watch: ServerResponse | null = null;

  constructor(pod: ApiPod) {
    this.stored = pod;
    this.#listed = pod;
  }

  readonly answer = (request: IncomingMessage, response: ServerResponse): void => {
    const { pathname, searchParams: query } = new URL(request.url ?? '/', 'https://api');
    if (query.has('sendInitialEvents')) response.writeHead(422).end('{}');
    else if (pathname === '/api/v1/namespaces/demo/pods/web-0') this.#one(response);
    else if (query.has('watch')) {
      if (pathname === '/api/v1/pods') this.#watch = response;
      response.flushHeaders();
    } else {
      const namespace = { metadata: { name: 'demo', resourceVersion: '1' } };
      const items = pathname === '/api/v1/pods' ? [this.#listed] : [namespace];
      response.end(JSON.stringify({ metadata: { resourceVersion: '1' }, items }));
    }
  };

  /** Makes the watch tell that `pod` has taken the place of the first one. */
  replace(pod: ApiPod): void {
    for (const event of [
      { type: 'DELETED', object: this.#listed },
      { type: 'ADDED', object: pod },
    ]) {
      this.#watch?.write(`${JSON.stringify(event)}\n`);
    }
  }

  #one(response: ServerResponse): void {
    this.questions += 1;
    if (this.stored !== null) response.end(JSON.stringify(this.stored));
    else response.once('close', () => (this.abandoned += 1));
  }
}

function apiPod(uid: string, resourceVersion: string, labels: Record<string, string>): ApiPod {
  return {
    metadata: { uid, namespace: 'demo', name: 'web-0', resourceVersion, labels },
    spec: { nodeName: NODE },
    status: { phase: 'Running', podIP: '127.0.0.1', startTime: '2026-01-01T00:00:00Z' },
  };
}

const PLAIN = apiPod('u-1', '1', {});
const AMBIENT = apiPod('u-2', '3', { 'istio.io/dataplane-mode': 'ambient' });

interface Asked {
  readonly pods: KubernetesPods;
  post(event: unknown): Promise<HttpAnswer>;
}

/** Follows the API server and answers the plugin. Each pod is enrolled at once. */
async function asked(t: ExecutionContext, api: OnePodApi): Promise<Asked> {
  const { log } = keptLog('node-agent');
  const pods = new KubernetesPods({
    client: await clientOf(t, api.answer),
    clock: systemClock,
    log,
    metrics: reflectorMetrics(new MetricRegistry()),
    node: NODE,
    supervise: (work) => void work.catch((error: unknown) => t.fail(String(error))),
    onRedirection: () => {},
  });
  t.teardown(() => pods.close());
  let isTold = false;
  await pods.start(() => (isTold = true));
  await until(() => isTold, { what: 'the first set' });
  const dir = await makeScratch('starting');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const server = new AddServer({
    runDir: dir,
    hostRoot: '',
    rules: { excludedNamespaces: [], selectors: DEFAULT_SELECTORS },
    source: pods,
    pods: {
      outcome: () => Promise.resolve({ state: 'enabled', reason: null }),
      holderOf: () => null,
    },
    clock: systemClock,
    log,
    onAnswer: () => {},
  });
  await server.listen();
  t.teardown(() => server.close());
  const socket = join(dir, 'pluginevent.sock');
  const post = (body: unknown): Promise<HttpAnswer> =>
    ask({ socket, method: 'POST', path: '/cmdadd', body });
  return { pods, post };
}

test('a pod without a uid is not taken for the earlier one of its name that a late watch still tells', async (t) => {
  const api = new OnePodApi(PLAIN);
  const { pods, post } = await asked(t, api);
  t.regex((await post(EVENT)).body, /outside the mesh/);
  api.stored = AMBIENT;
  t.is((await post(EVENT)).status, 500);
  t.is((await post({ ...EVENT, PodUID: 'u-2' })).status, 500);
  api.replace(AMBIENT);
  await until(() => pods.byUid('u-2') !== null, { what: 'the watch tells the new pod' });
  const { status, body } = await post(EVENT);
  t.is(status, 200, body);
  t.regex(body, /is enrolled/);
});

test('a pod with a uid is judged from memory', async (t) => {
  const api = new OnePodApi(PLAIN);
  const { post } = await asked(t, api);
  api.stored = null;
  t.is((await post({ ...EVENT, PodUID: 'u-1' })).status, 200);
  t.is(api.questions, 0);
});

test('nobody can tell while the API server says nothing, and the question to it ends', async (t) => {
  const api = new OnePodApi(PLAIN);
  const { post } = await asked(t, api);
  api.stored = null;
  const { status, body } = await post(EVENT);
  t.is(status, 503);
  t.regex(body, /pod demo\/web-0 cannot be looked up: no answer within/);
  await until(() => api.abandoned === 1, { what: 'the end of the question' });
  t.is(api.questions, 1);
});

test('a pod that was asked about outside the mesh does not count as one that the plugin missed', async (t) => {
  const { pods, post } = await asked(t, new OnePodApi(PLAIN));
  t.deepEqual([...pods.uncalled(0)], ['u-1']);
  t.regex((await post({ ...EVENT, PodUID: 'u-1' })).body, /outside the mesh/);
  t.deepEqual([...pods.uncalled(0)], []);
});
