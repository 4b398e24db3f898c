import { CommanderError } from 'commander';
import test from 'ava';
import { connectionRecord } from '../../../support/records.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { boards } from '../../../../lib/bus/catalog.ts';
import { explainLines } from '../../../../services/cli/explain.ts';
import { failureOf } from '../../../../services/cli/failure.ts';
import { connectionLine } from '../../../../services/cli/get/proxies.ts';
import { podLines } from '../../../../services/cli/get/pods.ts';
import { upgradedLine } from '../../../../services/cli/commands/upgrade.ts';
import { objectName } from '../../../../services/cli/manifest-command.ts';
import { exitStatus } from '../../../../services/cli/run-foreground.ts';
import { UsageError } from '../../../../lib/errors/usage-error.ts';

test('each kind of failure has its status, and is one line', (t) => {
  const cases: readonly (readonly [unknown, number, readonly string[]])[] = [
    [new UsageError('no such role'), 2, ['weft: no such role']],
    [new MeshError('CONFIG_INVALID', 'X is unknown'), 78, ['weft: X is unknown']],
    [new MeshError('CONFIG_UNSUPPORTED', 'no root'), 78, ['weft: no root']],
    [new MeshError('STATE_UNAVAILABLE', 'not running\n see'), 1, ['weft: not running; see']],
    [new TypeError('oh'), 1, ['weft: oh']],
    [new CommanderError(1, 'commander.unknownCommand', 'x'), 2, []],
    [new CommanderError(1, 'commander.help', '(outputHelp)'), 2, []],
    [new CommanderError(0, 'commander.helpDisplayed', '(outputHelp)'), 0, []],
  ];
  for (const [error, status, lines] of cases) t.deepEqual(failureOf(error), { status, lines });
});

test('refused manifests begin with their place', (t) => {
  const error = new MeshError('MANIFEST_INVALID', 'a.yaml: document 0: kind: missing\nb.yaml: bad');
  t.deepEqual(failureOf(error), {
    status: 1,
    lines: ['a.yaml: document 0: kind: missing', 'b.yaml: bad', 'weft: nothing was changed'],
  });
});

test('a connection is shown in the shape of the command line', (t) => {
  t.deepEqual(
    connectionLine(
      connectionRecord({
        podUid: 'u',
        direction: 'outbound',
        protocol: 'HBONE',
        source: '10.128.16.2:4000',
        destination: '10.96.0.1:80',
        actualDestination: '10.128.32.2:15008',
        destinationService: null,
        sourceWorkload: null,
        destinationWorkload: null,
        sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/client',
        destinationIdentity: null,
        bytesSent: 1,
        bytesReceived: 2,
        openedAtMs: 0,
      }),
    ),
    {
      source: '10.128.16.2:4000',
      destination: '10.96.0.1:80',
      sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/client',
      destinationIdentity: null,
      direction: 'outbound',
      protocol: 'HBONE',
      path: null,
      bytesSent: 1,
      bytesReceived: 2,
      openedAt: '1970-01-01T00:00:00.000Z',
    },
  );
});

test('pods are sorted and joined with their enrolment', (t) => {
  const pod = (namespace: string, name: string) => ({
    uid: `${namespace}-${name}`,
    namespace,
    name,
    node: 'node-1',
    ip: '10.128.16.2',
    ips: ['10.128.16.2'],
    netns: `/run/netns/weft-${namespace}-${name}`,
    serviceAccount: 'default',
    phase: 'Running' as const,
    ambient: true,
  });
  const lines = podLines([pod('b', 'x'), pod('a', 'y'), pod('a', 'b')], new Set(['a-y']));
  t.deepEqual(
    lines.map(({ namespace, name, enrolled }) => [namespace, name, enrolled]),
    [
      ['a', 'b', false],
      ['a', 'y', true],
      ['b', 'x', false],
    ],
  );
  t.deepEqual(Object.keys(lines[0] ?? {}), [
    'namespace',
    'name',
    'node',
    'ip',
    'netns',
    'serviceAccount',
    'enrolled',
  ]);
});

test('objects are named as kubectl names them', (t) => {
  t.is(objectName({ kind: 'Pod', namespace: 'demo', name: 'web' }), 'pod/demo/web');
  t.is(objectName({ kind: 'Namespace', namespace: null, name: 'demo' }), 'namespace/demo');
});

test('an exit by signal is reported as shells do', (t) => {
  t.is(exitStatus(3, null), 3);
  t.is(exitStatus(null, 'SIGKILL'), 137);
  t.is(exitStatus(null, 'SIGTERM'), 143);
});

test('an explanation begins with the verdict', (t) => {
  const request = {
    from: { namespace: 'demo', pod: 'client' },
    to: { namespace: 'demo', name: 'web', port: 80 },
  };
  const lines = explainLines(request, boards.explain.sample);
  t.is(lines[0], 'DENIED: demo/client to demo/web:80');
  t.true(lines.includes('  policy:            demo/deny-all, rule 0'));
  t.true(lines.includes('  path:              HBONE'));
  t.false(lines.some((line) => line.includes('dry run')));
});

test('an upgrade says what still drains, what it carries and how long that may take', (t) => {
  const done = { role: 'node-1/node-proxy', generation: 2, pids: [7], draining: [5] };
  const serves = 'node-1/node-proxy: generation 2 serves (pid 7)';
  const cases: readonly (readonly [readonly number[], number | null, number | null, string])[] = [
    [[5], null, 3, `${serves}; 5 drains 3 connections without a time limit`],
    [[5], 600_000, 1, `${serves}; 5 drains 1 connection for at most 600 s`],
    [[5], 5_000, null, `${serves}; 5 drains for at most 5 s`],
    [[], null, 0, serves],
  ];
  for (const [draining, drainDeadlineMs, carried, line] of cases) {
    t.is(upgradedLine({ ...done, draining, drainDeadlineMs }, carried), line);
  }
});
