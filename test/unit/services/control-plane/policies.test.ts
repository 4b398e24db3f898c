/** spec: istiod-ambient.md §2.1, spec: istiod-ambient.md §2.2, spec: istiod-ambient.md §2.3, spec: istiod-ambient.md §2.4. */
import test from 'ava';
import type { Authorization, Match } from '../../../../lib/policy/model.ts';
import { conditionsOf } from '../../../../services/control-plane/policy/conditions.ts';
import { matchFixture } from '../../../support/model-fixtures.ts';
import { TestMesh, podManifest } from '../../../support/mesh-objects.ts';

const policy = (spec: string, metadata = 'namespace: demo'): string =>
  `apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, ${metadata}}\nspec: {${spec}}\n`;

function converted(spec: string, metadata?: string): Authorization | undefined {
  const mesh = new TestMesh();
  mesh.apply(policy(spec, metadata));
  return mesh.policy(`${metadata?.includes('istio-system') === true ? 'istio-system' : 'demo'}/p`);
}

/** Returns the clauses of the first rule, each as its matches. */
const clauses = (spec: string): (readonly Match[])[] | undefined =>
  converted(spec)?.rules[0]?.clauses.map(({ matches }) => matches);

function condition(spec: string, metadata?: string): unknown {
  const mesh = new TestMesh();
  mesh.apply(policy(spec, metadata));
  return conditionsOf(mesh.state.object('AuthorizationPolicy', 'demo', 'p') ?? null)[0];
}

test('scope and action', (t) => {
  t.like(converted(''), { scope: 'NAMESPACE', action: 'ALLOW', rules: [], dryRun: false });
  t.like(converted('action: DENY, selector: {matchLabels: {a: b}}'), {
    scope: 'WORKLOAD_SELECTOR',
    action: 'DENY',
  });
  t.like(converted('', 'namespace: istio-system'), { scope: 'GLOBAL', namespace: 'istio-system' });
});

for (const [what, spec, metadata, type] of [
  ['with a target', 'targetRef: {kind: Gateway, name: g}', undefined, 'WaypointAccepted'],
  ['with targets', 'targetRefs: [{kind: Gateway, name: g}]', undefined, 'WaypointAccepted'],
  ['that audits', 'action: AUDIT', undefined, 'ZtunnelAccepted'],
  [
    'of an external authorizer',
    'action: CUSTOM, provider: {name: x}',
    undefined,
    'ZtunnelAccepted',
  ],
  [
    'that is a dry run',
    '',
    "namespace: demo, annotations: {istio.io/dry-run: 'true'}",
    'ZtunnelAccepted',
  ],
] as const) {
  test(`a policy ${what} is not sent, and says why`, (t) => {
    t.is(converted(spec, metadata), undefined);
    t.like(condition(spec, metadata), { type, status: 'False' });
  });
}

test('dry-run policies are sent where that is switched on; a broken annotation changes nothing', (t) => {
  const mesh = new TestMesh({ policies: { rootNamespace: 'istio-system', dryRun: true } });
  mesh.apply(policy('', "namespace: demo, annotations: {istio.io/dry-run: 'true'}"));
  t.is(mesh.policy('demo/p')?.dryRun, true);
  t.is(converted('', "namespace: demo, annotations: {istio.io/dry-run: 'maybe'}")?.dryRun, false);
});

test('the parts of a rule become clauses', (t) => {
  const spec =
    'rules: [{to: [{operation: {ports: ["80", "81"]}}, {operation: {notPorts: ["90"]}}], from: [{source: {namespaces: [a]}}, {source: {principals: [b]}}], when: [{key: source.ip, values: [10.0.0.0/8]}, {key: destination.port, notValues: ["22"]}]}]';
  t.deepEqual(clauses(spec), [
    [matchFixture({ destinationPorts: [80, 81] }), matchFixture({ notDestinationPorts: [90] })],
    [
      matchFixture({ namespaces: [{ kind: 'exact', value: 'a' }] }),
      matchFixture({ principals: [{ kind: 'exact', value: 'b' }] }),
    ],
    [matchFixture({ sourceIps: [{ address: '10.0.0.0', length: 8 }] })],
    [matchFixture({ notDestinationPorts: [22] })],
  ]);
  t.is(converted('rules: [{}, {}]')?.rules.length, 2);
  t.deepEqual(clauses('rules: [{}]'), []);
});

test('every condition of a source', (t) => {
  const spec = `rules: [{from: [{source: {ipBlocks: [10.1.2.3], notIpBlocks: ['fd00::/8'], namespaces: ['a*'], notNamespaces: ['*b'], principals: ['*'], notPrincipals: [c]}}, {source: {serviceAccounts: [x, y/z], notServiceAccounts: [w]}}]}]`;
  t.deepEqual(clauses(spec)?.[0], [
    matchFixture({
      sourceIps: [{ address: '10.1.2.3', length: 32 }],
      notSourceIps: [{ address: 'fd00::', length: 8 }],
      namespaces: [{ kind: 'prefix', value: 'a' }],
      notNamespaces: [{ kind: 'suffix', value: 'b' }],
      principals: [{ kind: 'presence' }],
      notPrincipals: [{ kind: 'exact', value: 'c' }],
    }),
    matchFixture({
      serviceAccounts: [
        { namespace: 'demo', serviceAccount: 'x' },
        { namespace: 'y', serviceAccount: 'z' },
      ],
      notServiceAccounts: [{ namespace: 'demo', serviceAccount: 'w' }],
    }),
  ]);
});

test('every key of a condition', (t) => {
  const one = (text: string): Match | undefined => clauses(`rules: [{when: [${text}]}]`)?.[0]?.[0];
  t.deepEqual(
    one('{key: source.ip, values: [10.0.0.1], notValues: [10.0.0.2]}'),
    matchFixture({
      sourceIps: [{ address: '10.0.0.1', length: 32 }],
      notSourceIps: [{ address: '10.0.0.2', length: 32 }],
    }),
  );
  t.deepEqual(
    one('{key: source.namespace, values: ["a*"], notValues: [b]}'),
    matchFixture({
      namespaces: [{ kind: 'prefix', value: 'a' }],
      notNamespaces: [{ kind: 'exact', value: 'b' }],
    }),
  );
  t.deepEqual(
    one('{key: source.principal, values: [a], notValues: ["*"]}'),
    matchFixture({
      principals: [{ kind: 'exact', value: 'a' }],
      notPrincipals: [{ kind: 'presence' }],
    }),
  );
  t.deepEqual(
    one('{key: destination.ip, values: [10.0.0.1], notValues: ["fd00::1"]}'),
    matchFixture({
      destinationIps: [{ address: '10.0.0.1', length: 32 }],
      notDestinationIps: [{ address: 'fd00::1', length: 128 }],
    }),
  );
  t.deepEqual(
    one('{key: destination.port, values: ["80"], notValues: ["81"]}'),
    matchFixture({ destinationPorts: [80], notDestinationPorts: [81] }),
  );
});

test('an ALLOW rule with a layer 7 condition is left out, so that less is allowed', (t) => {
  const spec =
    'rules: [{to: [{operation: {methods: [GET], ports: ["80"]}}]}, {from: [{source: {namespaces: [a]}}]}]';
  t.is(converted(spec)?.rules.length, 1);
  t.is(converted('rules: [{when: [{key: "request.headers[x]", values: [a]}]}]')?.rules.length, 0);
  t.like(condition(spec), {
    status: 'False',
    reason: 'UnsupportedValue',
    message:
      'ztunnel does not support methods: rules that use them are left out, so less is allowed',
  });
});

test('a DENY rule loses its layer 7 conditions; a clause without any other can never hold', (t) => {
  const ports = 'action: DENY, rules: [{to: [{operation: {methods: [GET], ports: ["80"]}}]}]';
  t.deepEqual(clauses(ports), [[matchFixture({ destinationPorts: [80] })]]);
  t.like(condition(ports), {
    message:
      'ztunnel does not support methods: the policy is enforced without them, so more is denied',
  });
  const only =
    'action: DENY, rules: [{to: [{operation: {paths: [/a], methods: [GET]}}], from: [{source: {principals: [x]}}]}]';
  t.deepEqual(clauses(only)?.[0], [matchFixture()]);
  t.like(condition(only), {
    message: 'ztunnel does not support methods, paths: the policy has no effect without them',
  });
  t.deepEqual(clauses('action: DENY, rules: [{when: [{key: connection.sni, values: [a]}]}]'), [
    [matchFixture()],
  ]);
});

test('trust domains are not silently dropped from an ALLOW', (t) => {
  const spec = 'rules: [{from: [{source: {namespaces: [a], trustDomains: [other.td]}}]}]';
  t.is(converted(spec)?.rules.length, 0);
  t.like(condition(spec), { reason: 'UnsupportedValue' });
});

test('a condition keeps the time of its last transition', (t) => {
  const mesh = new TestMesh();
  const time = (): string | undefined =>
    conditionsOf(mesh.state.object('AuthorizationPolicy', 'demo', 'p') ?? null)[0]
      ?.lastTransitionTime;
  mesh.apply(policy(''));
  const first = time();
  mesh.apply(policy('rules: [{}]'));
  t.is(time(), first);
  mesh.apply(policy('action: AUDIT'));
  t.not(time(), first);
});

test('a workload lists the selector policies that bind it, its own and the root namespace’s', (t) => {
  const mesh = new TestMesh();
  mesh.apply(podManifest('web-1', { metadata: 'labels: {app: web}' }));
  const named = (name: string, namespace: string, spec: string): void =>
    mesh.apply(policy(spec, `namespace: ${namespace}`).replace('name: p', `name: ${name}`));
  named('zz', 'demo', 'selector: {matchLabels: {app: web}}');
  named('all', 'demo', '');
  named('other', 'demo', 'selector: {matchLabels: {app: api}}');
  named('root', 'istio-system', 'selector: {matchLabels: {app: web}}');
  named('global', 'istio-system', '');
  named('foreign', 'other', 'selector: {matchLabels: {app: web}}');
  named('unsent', 'demo', 'action: AUDIT, selector: {matchLabels: {app: web}}');
  t.deepEqual(mesh.pod('web-1')?.authorizationPolicies, ['demo/zz', 'istio-system/root']);
  mesh.remove('AuthorizationPolicy/istio-system/root');
  t.deepEqual(mesh.pod('web-1')?.authorizationPolicies, ['demo/zz']);
});

const peer = (spec: string, namespace = 'demo', name = 'default'): string =>
  `apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: ${name}, namespace: ${namespace}}\nspec: {${spec}}\n`;
const STATIC = 'istio-system/istio_converted_static_strict';
const WEB = 'selector: {matchLabels: {app: web}}';

function peers(...texts: string[]): TestMesh {
  const mesh = new TestMesh();
  mesh.apply(podManifest('web-1', { metadata: 'labels: {app: web}' }));
  for (const text of texts) mesh.apply(text);
  return mesh;
}
const listed = (mesh: TestMesh): readonly string[] | undefined =>
  mesh.pod('web-1')?.authorizationPolicies;

test('STRICT lists the static policy, which is sent as soon as there is any PeerAuthentication', (t) => {
  t.deepEqual(peers().policies(), []);
  const permissive = peers(peer('mtls: {mode: PERMISSIVE}'));
  t.deepEqual(permissive.policies(), [STATIC]);
  t.deepEqual(listed(permissive), []);
  const strict = peers(peer('mtls: {mode: STRICT}'));
  t.deepEqual(listed(strict), [STATIC]);
  t.deepEqual(strict.policy(STATIC), {
    name: 'istio_converted_static_strict',
    namespace: 'istio-system',
    scope: 'WORKLOAD_SELECTOR',
    action: 'DENY',
    rules: [{ clauses: [{ matches: [matchFixture({ notPrincipals: [{ kind: 'presence' }] })] }] }],
    dryRun: false,
  });
  strict.remove('PeerAuthentication/demo/default');
  t.deepEqual(strict.policies(), []);
  t.deepEqual(listed(strict), []);
});

const levels: readonly (readonly [what: string, texts: string[], strict: boolean])[] = [
  ['the mesh', [peer('mtls: {mode: STRICT}', 'istio-system')], true],
  [
    'the namespace over the mesh',
    [peer('mtls: {mode: STRICT}', 'istio-system'), peer('mtls: {mode: PERMISSIVE}')],
    false,
  ],
  [
    'the mesh where the namespace leaves it unset',
    [peer('mtls: {mode: STRICT}', 'istio-system'), peer('mtls: {mode: UNSET}')],
    true,
  ],
  [
    'the workload over the namespace',
    [peer('mtls: {mode: STRICT}'), peer(`${WEB}, mtls: {mode: DISABLE}`, 'demo', 'web')],
    false,
  ],
  [
    'the namespace where the workload leaves it unset',
    [peer('mtls: {mode: STRICT}'), peer(WEB, 'demo', 'web')],
    true,
  ],
  [
    'the oldest of a level',
    [peer('mtls: {mode: STRICT}', 'demo', 'zz'), peer('mtls: {mode: PERMISSIVE}', 'demo', 'aa')],
    true,
  ],
  [
    'not a selector of the root namespace',
    [peer(`${WEB}, mtls: {mode: STRICT}`, 'istio-system', 'web')],
    false,
  ],
  ['not another namespace', [peer('mtls: {mode: STRICT}', 'other')], false],
];
for (const [what, texts, strict] of levels) {
  test(`the mode is that of ${what}`, (t) => {
    t.deepEqual(listed(peers(...texts)), strict ? [STATIC] : []);
  });
}

const NO_PRINCIPAL = { matches: [matchFixture({ notPrincipals: [{ kind: 'presence' }] })] };
const CONVERTED = 'demo/converted_peer_authentication_web';
const portly = (mode: string, ports: string): string =>
  peer(
    `${WEB}, ${mode === '' ? '' : `mtls: {mode: ${mode}}, `}portLevelMtls: {${ports}}`,
    'demo',
    'web',
  );

test('STRICT with permissive ports: plaintext is refused on all others', (t) => {
  const mesh = peers(
    portly('STRICT', '"90": {mode: DISABLE}, "80": {mode: PERMISSIVE}, "70": {mode: STRICT}'),
  );
  t.deepEqual(mesh.policy(CONVERTED)?.rules, [
    {
      clauses: [
        NO_PRINCIPAL,
        { matches: [matchFixture({ notDestinationPorts: [80] })] },
        { matches: [matchFixture({ notDestinationPorts: [90] })] },
      ],
    },
  ]);
  t.deepEqual(listed(mesh), [CONVERTED]);
});

test('PERMISSIVE with strict ports: plaintext is refused on those', (t) => {
  const mesh = peers(
    portly('PERMISSIVE', '"80": {mode: STRICT}, "90": {mode: STRICT}, "70": {mode: UNSET}'),
  );
  t.deepEqual(
    mesh.policy(CONVERTED)?.rules,
    [80, 90].map((port) => ({
      clauses: [NO_PRINCIPAL, { matches: [matchFixture({ destinationPorts: [port] })] }],
    })),
  );
  t.deepEqual(listed(mesh), [CONVERTED]);
});

test('an unset mode with ports takes its parent’s', (t) => {
  const mesh = peers(
    peer('mtls: {mode: STRICT}', 'istio-system'),
    portly('', '"80": {mode: PERMISSIVE}'),
  );
  t.is(mesh.policy(CONVERTED)?.rules[0]?.clauses.length, 2);
  t.deepEqual(listed(mesh), [CONVERTED]);
  mesh.apply(peer('mtls: {mode: PERMISSIVE}', 'istio-system'));
  t.is(mesh.policy(CONVERTED), undefined);
  t.deepEqual(listed(mesh), []);
});

test('STRICT with strict ports only needs no policy of its own', (t) => {
  const mesh = peers(portly('STRICT', '"80": {mode: STRICT}'));
  t.is(mesh.policy(CONVERTED), undefined);
  t.deepEqual(listed(mesh), [STATIC]);
});
