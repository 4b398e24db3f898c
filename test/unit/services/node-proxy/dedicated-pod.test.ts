import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { closeFd } from '../../../../lib/linux/netns.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import type { Workload } from '../../../../lib/state/model.ts';
import { dedicatedPod } from '../../../../services/node-proxy/pods/pod-source.ts';
import { LocalIdentities } from '../../../../services/node-proxy/state-thread/local-identities.ts';
import { workload } from '../../../support/workloads.ts';

const log = createLogger({ actor: 'node-proxy', node: '', level: 'silent' });
const api = { namespace: 'demo', name: 'api', serviceAccount: 'api' };

for (const fails of [false, true]) {
  test(`the list of pods is complete only after the one pod ${fails ? 'failed' : 'was started'}`, async (t) => {
    const steps: unknown[] = [];
    const pod = dedicatedPod(
      api,
      {
        sessionOpened: () => void steps.push('opened'),
        add: async (info, netnsFd) => {
          closeFd(netnsFd);
          await Promise.resolve();
          steps.push(info);
          if (fails) throw new MeshError('NATIVE_SYSCALL', 'the port is taken');
        },
        snapshot: (uids) => void steps.push([...uids]),
      },
      log,
    );
    pod.start();
    await pod.close();
    const uid = 'dedicated/demo/api';
    t.deepEqual(steps, ['opened', { uid, ...api }, [uid]]);
  });
}

test('one that never started ends at once', async (t) => {
  const never = (): never => {
    throw new Error('no pod is named');
  };
  const none = { sessionOpened: never, add: never, snapshot: never };
  const pod = dedicatedPod(api, none, log);
  pod.drain();
  await pod.close();
  t.pass();
});

test('a dedicated proxy has certificates made ahead for its own workload alone', (t) => {
  const of = (fields: Partial<Workload>): Workload =>
    workload({ uid: `uid-${JSON.stringify(fields)}`, node: 'node-1', ...api, ...fields });
  const identities = new LocalIdentities('node-1', api);
  const others = [{ name: 'other' }, { namespace: 'else' }, { serviceAccount: 'x' }, { node: 'n' }];
  for (const fields of others) identities.count({ kind: 'workload', workload: of(fields) }, 1);
  t.is(identities.workloads, 4);
  t.is(identities.takeChanged(), null);
  identities.count({ kind: 'workload', workload: of({}) }, 1);
  t.deepEqual(identities.takeChanged(), ['spiffe://cluster.local/ns/demo/sa/api']);
});
