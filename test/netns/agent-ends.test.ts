/** Tests that an agent that ends enrols no pod it still hears of: another agent serves those, or none will. */
import type { ExecutionContext } from 'ava';
import { createLogger } from '../../lib/log/logger.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import { makeScratch } from '../support/leftovers.ts';
import { createPodPair } from '../support/netns-kit.ts';
import type { TestNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { nodeEnrolments } from '../support/node-enrolments.ts';
import { seizeTable } from '../support/pod-faults.ts';
import { podRecord } from '../support/pod-records.ts';
import { until } from '../support/until.ts';

const redirected = async (pod: TestNetns): Promise<boolean> =>
  (await pod.exec('iptables-nft', '-t', 'nat', '-S')).includes('ISTIO_');

async function enrolled(t: ExecutionContext) {
  const { pod, peer } = await createPodPair(t);
  const lines: string[] = [];
  const log = createLogger(
    { actor: 'node-agent', level: 'error' },
    { write: (line: string) => lines.push(line) },
  );
  const { enrolments } = await nodeEnrolments(await makeScratch('ends'), log);
  t.teardown(() => enrolments.stop());
  const old = podRecord({ uid: 'u-1', netns: pod.path });
  const fresh = podRecord({ uid: 'u-2', netns: peer.path });
  const tell = (...records: PodRecord[]): Promise<void> =>
    enrolments.update({
      pods: new Map(records.map((record) => [record.uid, record])),
      unreadable: new Set(),
    });
  await tell(old);
  t.true(await redirected(pod));
  return { enrolments, pod, peer, tell, old, fresh, lines };
}

test('an agent that stops enrols neither a new pod nor one that it had', async (t) => {
  const { enrolments, pod, peer, tell, old, fresh } = await enrolled(t);
  await enrolments.stop();
  await pod.exec('sh', '-c', 'iptables-nft -t nat -F; iptables-nft -t nat -X');
  await tell(old, fresh);
  t.false(await redirected(peer));
  t.false(await redirected(pod));
  t.deepEqual(enrolments.wanted(), []);
});

test('an agent that leaves its node enrols no new pod', async (t) => {
  const { enrolments, pod, peer, tell, old, fresh } = await enrolled(t);
  const left = enrolments.leaveNode(() => false);
  await tell(old, fresh);
  await left;
  t.false(await redirected(peer));
  t.false(await redirected(pod));
});

test('an agent that leaves its node leaves the rest to the next one when that comes', async (t) => {
  const { enrolments, pod, tell, old, lines } = await enrolled(t);
  const left = enrolments.leaveNode(() => true);
  await enrolments.handOver();
  await left;
  await tell(old);
  t.regex(await pod.exec('iptables-nft', '-t', 'mangle', '-S'), /ISTIO_/);
  t.deepEqual(lines, []);
});

test('an agent that leaves its node repeats what fails, and names the pods that are left', async (t) => {
  const { enrolments, pod, tell, old, fresh, lines } = await enrolled(t);
  await tell(old, fresh);
  const release = await seizeTable(pod, 'ISTIO_OUTPUT');
  const reasonOf = (): string | undefined =>
    enrolments.view().find(({ podUid }) => podUid === old.uid)?.reason;
  let asked = 0;
  await enrolments.leaveNode(() => {
    asked += 1;
    return asked < 2;
  });
  t.truthy(reasonOf());
  t.is(asked, 2);
  t.is(lines.length, 1);
  t.like(JSON.parse(lines[0] ?? ''), {
    level: 'error',
    message: 'pod.not-unenrolled',
    uid: old.uid,
    reason: reasonOf(),
  });
  let over = false;
  const left = enrolments
    .leaveNode(() => true)
    .finally(() => {
      over = true;
    });
  await until(() => reasonOf() !== undefined, { what: 'an attempt has failed' });
  t.false(over);
  await release();
  await left;
  t.is(lines.length, 1);
  t.false(await redirected(pod));
  t.is(enrolments.states().get('outside'), 2);
});
