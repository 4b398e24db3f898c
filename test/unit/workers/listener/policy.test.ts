import { MessageChannel } from 'node:worker_threads';
import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { compileProgram } from '../../../../lib/policy/compile.ts';
import type { Connection } from '../../../../workers/listener/telemetry/connection.ts';
import type { LocalPod } from '../../../../workers/listener/protocol/state.ts';
import { StateClient } from '../../../../workers/listener/state-client.ts';
import { inboundConnection, podPolicy } from '../../../support/pod-policy.ts';
import { until } from '../../../support/until.ts';
import { workload } from '../../../support/workloads.ts';

const pod = { uid: 'u', name: 'web', namespace: 'demo', serviceAccount: 'web' };
const log = createLogger({ actor: 'test', level: 'off' });

function localWith(setId: string): LocalPod {
  return {
    workload: workload(),
    services: [],
    policy: { setId, unknown: [], pending: false, denyAll: null },
  };
}

// spec: policy.md §7
test('live connections are cut when the policies that bind them are not there', async (t) => {
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  const state = new StateClient(port2, systemClock);
  state.watch(pod);
  port1.postMessage({ type: 'program', program: compileProgram('first', []) });
  port1.postMessage({ type: 'local', uid: pod.uid, pod: localWith('first') });
  await until(() => state.local(pod.uid) !== null, { what: 'the pod' });
  const connections: Connection[] = [];
  const policy = podPolicy(t, { pod, connections, state, log });
  const { connection, facts } = inboundConnection(workload(), 80, log);
  connections.push(connection);
  await policy.admit(connection, facts);
  t.is(connection.cutBy, null);
  port1.postMessage({ type: 'local', uid: pod.uid, pod: localWith('never sent') });
  await until(() => connection.cutBy !== null, { what: 'the cut' });
  t.is(connection.cutBy?.code, 'POLICY_DENIED');
});
