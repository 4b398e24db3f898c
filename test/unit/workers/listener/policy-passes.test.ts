/** Which changes of a pod judge its live connections again. */
import { MessageChannel } from 'node:worker_threads';
import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { compileProgram } from '../../../../lib/policy/compile.ts';
import type { EffectivePolicy } from '../../../../lib/policy/model.ts';
import type { Connection } from '../../../../workers/listener/telemetry/connection.ts';
import type { StateResponse } from '../../../../workers/listener/protocol/state.ts';
import { StateClient } from '../../../../workers/listener/state-client.ts';
import { authorizationFixture, matchFixture } from '../../../support/model-fixtures.ts';
import { inboundConnection, podPolicy } from '../../../support/pod-policy.ts';
import { until } from '../../../support/until.ts';
import { service, workload } from '../../../support/workloads.ts';

const pod = { uid: 'u', name: 'web', namespace: 'demo', serviceAccount: 'web' };
const OPEN = { setId: 'set', unknown: [], pending: false, denyAll: null };

test('live connections are judged again when what binds them changes, not when services of their pod do', async (t) => {
  const log = createLogger({ actor: 'test', level: 'silent' });
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  const state = new StateClient(port2, systemClock);
  state.watch(pod);
  const connections: Connection[] = [];
  const policy = podPolicy(t, { pod, connections, state, log });
  const send = (message: StateResponse): void => port1.postMessage(message);
  const sendProgram = (port: number): void => {
    const rules = [{ clauses: [{ matches: [matchFixture({ destinationPorts: [port] })] }] }];
    const deny = authorizationFixture({ name: 'deny', action: 'DENY', rules });
    send({
      type: 'program',
      program: compileProgram('set', [{ key: 'demo/deny', policy: deny }]),
    });
  };
  let messages = 0;
  /** Tells the thread of the pod as it is now; resolves once the thread has handled it. */
  const tell = async (effective: EffectivePolicy, known = true): Promise<void> => {
    messages += 1;
    const name = `web-${messages}`;
    const services = [service({ name })];
    const local = { workload: known ? workload() : null, services, policy: effective };
    send({ type: 'local', uid: pod.uid, pod: local });
    await until(() => state.local(pod.uid)?.services[0]?.name === name, { what: name });
  };

  sendProgram(81);
  await tell(OPEN);
  const { connection, facts } = inboundConnection(workload(), 80, log);
  connections.push(connection);
  let judged = 0;
  await policy.admit(connection, {
    ...facts,
    get sourceIp() {
      judged += 1;
      return facts.sourceIp;
    },
  });
  const passes = async (...change: Parameters<typeof tell>): Promise<number> => {
    judged = 0;
    await tell(...change);
    return judged;
  };

  t.is(await passes(OPEN), 0, 'only a service changed');
  t.is(await passes({ ...OPEN, unknown: ['demo/x'], pending: true }), 1, 'a reference is unknown');
  t.is(await passes({ ...OPEN, unknown: ['demo/x'], pending: true }), 0, 'it still is');
  t.is(await passes(OPEN), 1, 'it is known');
  t.is(await passes(OPEN, false), 0, 'the workload is unknown');
  t.is(await passes(OPEN), 1, 'the workload is known again');
  sendProgram(82);
  t.is(await passes(OPEN), 1, 'the set has another program');
  t.is(connection.cutBy, null);
  sendProgram(80);
  await tell(OPEN);
  t.like(connection.cutBy, { code: 'POLICY_DENIED', detail: { policy: 'demo/deny' } });
});
