/** Tests the bounds of the CA's work for others: signature checks of bad tokens, and writes of the pod cache. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { Metadata } from '@grpc/grpc-js';
import { TokenVerifier } from '../../../lib/identity/token.ts';
import { CallerRates, Gate } from '../../../lib/async/gate.ts';
import { CallerFailures } from '../../../lib/grpc/caller-failures.ts';
import { MetricRegistry } from '../../../lib/metrics/registry.ts';
import { CertificateService } from '../../../services/ca/certificate-service.ts';
import { ControlPlanePods } from '../../../services/ca/control-plane-pods.ts';
import {
  CACHE_WRITE_DELAY_MS,
  MAX_CONCURRENT_REQUESTS,
  MAX_FAILURES_PER_SECOND,
  MAX_REQUESTS_PER_SECOND,
} from '../../../services/ca/limits.ts';
import { caMetrics } from '../../../services/ca/metrics.ts';
import { SigningPool } from '../../../services/ca/signing-pool.ts';
import { authorityOf, newState } from '../../../services/ca/state.ts';
import { capturedLog } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { podObject, servePodsApi } from '../../support/pods-api.ts';
import { accountSubject, createTokenIssuer, nodeSubject } from '../../support/token-issuer.ts';
import { until } from '../../support/until.ts';

const account = (namespace: string, name: string) => {
  const { serviceAccount } = accountSubject(namespace, name);
  return { namespace, serviceAccount };
};
const NO_PODS = { synced: false, runsOnNode: () => false, find: () => null };

/** Makes a service without pods. */
async function kit(t: ExecutionContext, callersPerSecond = 1_000) {
  const dir = await makeScratch('ca-bounds');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const clock = new FakeClock();
  const { log } = capturedLog();
  const issuer = createTokenIssuer();
  const jwksPath = join(dir, 'jwks.json');
  await issuer.publish(jwksPath);
  const verifier = new TokenVerifier(
    { jwksPath, audiences: ['istio-ca'], issuer: null },
    { clock, log },
  );
  const state = await newState('cluster.local', clock.now());
  const authority = {
    current: authorityOf(state, 'the test', clock.now()),
    problem: null,
    rotation: null,
  };
  const counted = { checks: 0 };
  const metrics = caMetrics(new MetricRegistry(), {
    authority,
    pods: NO_PODS,
    clock,
  });
  const service = new CertificateService(
    {
      trustedNodeAccounts: ['istio-system/ztunnel'],
      servingNames: {},
      defaultLifetimeMs: 1,
      maxLifetimeMs: 1,
    },
    {
      clock,
      log,
      metrics,
      gate: new Gate(
        { concurrent: MAX_CONCURRENT_REQUESTS, perSecond: MAX_REQUESTS_PER_SECOND },
        clock,
      ),
      callers: new CallerRates({ perSecond: callersPerSecond, callers: 100 }, clock),
      failures: new CallerFailures(MAX_FAILURES_PER_SECOND, clock),
      verifier: {
        verify: (token) => {
          counted.checks += 1;
          return verifier.verify(token);
        },
      },
      mesh: {
        current: {
          trustDomain: 'cluster.local',
          trustDomainAliases: [],
          rootNamespace: null,
          discoverySelectors: [],
        },
      },
      pods: NO_PODS,
      authority,
      signer: new SigningPool(1),
      holders: { note: () => Promise.reject(new Error('no certificate is issued')) },
    },
  );
  const { createCertificate } = service.handlers();
  const ask = (token: string | null, peer: string): Promise<string> => {
    const metadata = new Metadata();
    if (token !== null) metadata.set('authorization', `Bearer ${token}`);
    const call = {
      request: { csr: 'none', validitySeconds: 0, impersonated: 'spiffe://a/ns/b/sa/c' },
      metadata,
      getPeer: () => peer,
    };
    return new Promise((resolve) => {
      const reply = (error: { details?: string } | null): void => resolve(error?.details ?? '');
      (createCertificate as (call: unknown, reply: (error: never) => void) => void)(call, reply);
    });
  };
  return { ask, issuer, clock, counted };
}

test('signature checks of bad tokens are limited for each address; valid ones and other addresses are not', async (t) => {
  const { ask, issuer, clock, counted } = await kit(t);
  const bad = await createTokenIssuer(issuer.issuer).mint(nodeSubject('node-1'));
  const good = await issuer.mint(nodeSubject('node-1'));
  for (let call = 0; call < 3 * MAX_CONCURRENT_REQUESTS; call += 1) await ask(bad, '10.0.0.9:4000');
  t.is(counted.checks, 2 * MAX_FAILURES_PER_SECOND);
  t.is(await ask(bad, '10.0.0.9:4001'), 'too many requests', 'from another port, too');
  for (let call = 0; call < 3 * MAX_CONCURRENT_REQUESTS; call += 1) await ask(null, '10.0.0.7:1');
  counted.checks = 0;
  for (let call = 0; call < 500; call += 1) {
    t.is(await ask(good, '10.0.0.7:1'), 'request impersonation authentication failure');
  }
  t.is(counted.checks, 500, 'valid tokens count nowhere');
  await clock.advance(1_000);
  t.not(await ask(bad, '10.0.0.9:4002'), 'too many requests', 'a second later');
});

test('a bad caller does not shut out a node that was served from its address', async (t) => {
  const { ask, issuer } = await kit(t);
  const bad = await createTokenIssuer(issuer.issuer).mint(nodeSubject('node-1'));
  const good = await issuer.mint(nodeSubject('node-1'));
  const served = 'request impersonation authentication failure';
  t.is(await ask(good, '10.0.0.9:1'), served);
  while ((await ask(bad, '10.0.0.9:2')) !== 'too many requests');
  t.is(await ask(good, '10.0.0.9:1'), served);
});

test('the pods of a node do not use up the rate of the node', async (t) => {
  const { ask, issuer } = await kit(t, 5);
  const node = await issuer.mint(nodeSubject('node-1'));
  const pod = await issuer.mint({ ...nodeSubject('node-1'), ...account('demo', 'web') });
  const other = await issuer.mint({ ...nodeSubject('node-2'), ...account('demo', 'web') });
  while ((await ask(pod, '10.0.0.7:1')) !== 'too many requests');
  t.not(await ask(other, '10.0.0.7:1'), 'too many requests');
  t.not(await ask(node, '10.0.0.9:1'), 'too many requests');
});

test('a disk that takes long gathers no writes of the pod cache', async (t) => {
  const dir = await makeScratch('ca-bounds');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const clock = new FakeClock();
  const { log } = capturedLog();
  const api = await servePodsApi(join(dir, 'api.sock'), []);
  t.teardown(() => api.close());
  const written: string[] = [];
  const disk: (() => void)[] = [];
  const pods = new ControlPlanePods(join(dir, 'api.sock'), dir, {
    clock,
    log,
    replace: (_path, content) => {
      written.push(content);
      return new Promise((resolve) => disk.push(resolve));
    },
  });
  await pods.start();
  await until(() => pods.connected, { what: 'the pods' });
  await clock.advance(CACHE_WRITE_DELAY_MS);
  t.is(written.length, 1);
  const change = async (index: number): Promise<void> => {
    const object = podObject('demo', `web-${index}`, { node: 'node-1', account: `a${index}` });
    api.send({ type: 'ADDED', object });
    await until(() => pods.runsOnNode('node-1', 'demo', `a${index}`), { what: 'the pod' });
    await clock.advance(CACHE_WRITE_DELAY_MS);
  };
  for (let index = 0; index < 20; index += 1) await change(index);
  t.is(written.length, 1, 'one is in hand');
  disk.shift()?.();
  await until(
    async () => {
      await clock.advance(CACHE_WRITE_DELAY_MS);
      return written.length === 2;
    },
    { what: 'the next write' },
  );
  t.is((JSON.parse(written[1] ?? '') as unknown[]).length, 20, 'all that came meanwhile');
  disk.shift()?.();
  await until(() => clock.pending === 0, { what: 'the write to end' });
  await clock.advance(10 * CACHE_WRITE_DELAY_MS);
  t.is(written.length, 2, 'and nothing more was waiting');
  await change(20);
  await until(() => written.length === 3, { what: 'a write' });
  await change(21);
  const closed = pods.close();
  disk.shift()?.();
  await until(() => disk.length > 0, { what: 'the last write' });
  disk.shift()?.();
  await closed;
  t.is(
    (JSON.parse(written[3] ?? '') as unknown[]).length,
    22,
    'what was owed is written at the end',
  );
});
