/** Tests which sets the evaluator requests and drops over time. The integration tests use Redis behind the same ports. */
import test from 'ava';
import type { CompileBody } from '../../../../lib/bus/catalog.ts';
import type { RowChange, TableStanding } from '../../../../lib/bus/contract.ts';
import { PolicyStore } from '../../../../lib/policy/policy-store.ts';
import { EMPTY_SET_ID } from '../../../../lib/policy/set-id.ts';
import {
  decodeAuthorization,
  encodeAuthorization,
} from '../../../../lib/xds/resources/authorization.ts';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { ProgramTable } from '../../../../services/policy-evaluator/program-table.ts';
import { SetRegistry } from '../../../../services/policy-evaluator/set-registry.ts';
import { WorkloadClasses } from '../../../../services/policy-evaluator/workload-classes.ts';
import { workload } from '../../../support/mesh-kit.ts';
import { policy } from '../../../support/policy-kit.ts';

function setUp() {
  let nowMs = 0;
  const requests: CompileBody[] = [];
  const written: RowChange[] = [];
  const programs = new Set<string>();
  const classes = new WorkloadClasses();
  const policies = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
  const standing: TableStanding = 'intact';
  const writer = {
    apply: async (changes: readonly RowChange[]) => void written.push(...changes),
    standing: async () => standing,
  };
  const table = new ProgramTable({ sharedWriter: () => writer } as never);
  const book = new SetRegistry({
    clock: { ...systemClock, now: () => nowMs },
    policies,
    classes,
    programs,
    queue: { add: async (_id: string, body: CompileBody) => void requests.push(body) } as never,
    table,
    requested: () => undefined,
    dropped: () => undefined,
  });
  const pod = (uid: string, ...authorizationPolicies: string[]) => {
    const item = workload({ uid, namespace: 'app', authorizationPolicies });
    return { kind: 'workload', workload: item } as const;
  };
  const pass = (ms: number): void => void (nowMs += ms);
  return { book, classes, pass, pod, policies, programs, requests, written };
}

test('each distinct set is asked for once, and again later only while it has no program', async (t) => {
  const { book, classes, pass, pod, policies, programs, requests } = setUp();
  policies.apply(
    'app/p',
    encodeAuthorization(policy('DENY', [[]], { scope: 'WORKLOAD_SELECTOR' })),
  );
  for (const uid of ['a', 'b']) classes.replace(undefined, pod(uid, 'app/p'));
  classes.replace(undefined, pod('c'));
  await book.reconcile();
  t.deepEqual(
    requests.map(({ keys }) => keys),
    [['app/p'], []],
  );
  t.deepEqual(
    [...book.used.values()].map(({ workloads }) => workloads),
    [2, 1],
  );
  programs.add(EMPTY_SET_ID);
  await book.reconcile();
  t.is(requests.length, 2);
  pass(10_000);
  await book.reconcile();
  t.deepEqual(
    requests.slice(2).map(({ keys }) => keys),
    [['app/p']],
  );
  pass(10_000);
  await book.reconcile();
  t.is(requests.length, 3, 'the wait has doubled');
});

test('lists that differ in unknown keys alone are one set, whose unknown keys are counted', async (t) => {
  const { book, classes, pod, requests } = setUp();
  classes.replace(undefined, pod('a', 'app/missing'));
  classes.replace(undefined, pod('b'));
  await book.reconcile();
  t.is(requests.length, 1);
  t.is(book.unknownReferences, 1);
});

test('a program is dropped ten minutes after its last use, the empty one never', async (t) => {
  const { book, classes, pass, pod, programs, written } = setUp();
  programs.add(EMPTY_SET_ID).add('old').add('other');
  classes.replace(undefined, pod('a'));
  await book.reconcile();
  pass(599_999);
  await book.reconcile();
  t.deepEqual(written, []);
  pass(1);
  classes.replace(pod('a'), undefined);
  await book.reconcile();
  t.deepEqual(
    written.map(({ key, value }) => [key, value]),
    [
      ['old', null],
      ['other', null],
    ],
  );
});

test('classes follow workloads that come, change and go', (t) => {
  const { classes, pod } = setUp();
  t.true(classes.replace(undefined, pod('a', 'x')));
  t.false(classes.replace(undefined, pod('b', 'x')));
  t.false(classes.replace(pod('a', 'x'), pod('a', 'x')));
  t.true(classes.replace(pod('a', 'x'), pod('a', 'y')));
  t.is(classes.workloads, 2);
  t.true(classes.replace(pod('b', 'x'), undefined));
  t.is([...classes.values()].length, 1);
});
