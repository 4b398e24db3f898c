import test from 'ava';
import { istio } from '#proto/resources.js';
import {
  decodeAuthorization,
  encodeAuthorization,
} from '../../../../lib/xds/resources/authorization.ts';
import { authorizationFixture, matchFixture } from '../../../support/model-fixtures.ts';

type MatchMessage = istio.security.Match.$Properties;

const withMatch = (match: MatchMessage): Uint8Array =>
  istio.security.Authorization.encode({
    rules: [{ clauses: [{}, { matches: [match] }] }],
  }).finish();

test('a policy with every condition survives the round trip', (t) => {
  const policy = authorizationFixture({
    scope: 'WORKLOAD_SELECTOR',
    action: 'DENY',
    dryRun: true,
    rules: [
      { clauses: [] },
      {
        clauses: [
          { matches: [] },
          {
            matches: [
              matchFixture(),
              matchFixture({
                namespaces: [{ kind: 'exact', value: '' }],
                notNamespaces: [{ kind: 'prefix', value: 'a' }],
                serviceAccounts: [{ namespace: 'a', serviceAccount: 'x' }],
                notServiceAccounts: [{ namespace: 'b', serviceAccount: 'y' }],
                principals: [{ kind: 'presence' }, { kind: 'suffix', value: '/sa/x' }],
                notPrincipals: [{ kind: 'exact', value: 'td/ns/a/sa/x' }],
                sourceIps: [{ address: '10.1.2.9', length: 24 }],
                notSourceIps: [{ address: '10.0.0.0', length: 0 }],
                destinationIps: [{ address: 'fd00::1', length: 128 }],
                notDestinationIps: [{ address: '::ffff:10.0.0.0', length: 104 }],
                destinationPorts: [80, 65_535],
                notDestinationPorts: [0],
              }),
            ],
          },
        ],
      },
    ],
  });
  t.deepEqual(decodeAuthorization(encodeAuthorization(policy)), policy);
});

test('of several forms of one string condition the last on the wire counts', (t) => {
  const exact = istio.security.StringMatch.encode({ exact: 'a' }).finish();
  const suffix = istio.security.StringMatch.encode({ suffix: 'b' }).finish();
  const both = Buffer.concat([exact, suffix]);
  // Field 1 of Match, length-delimited.
  const match = Buffer.concat([Buffer.of(0x0a, both.length), both]);
  const clause = Buffer.concat([Buffer.of(0x12, match.length), match]);
  const rule = Buffer.concat([Buffer.of(0x0a, clause.length), clause]);
  const policy = decodeAuthorization(Buffer.concat([Buffer.of(0x2a, rule.length), rule]));
  t.deepEqual(policy.rules[0]?.clauses[0]?.matches[0]?.namespaces, [
    { kind: 'suffix', value: 'b' },
  ]);
});

test('extensions are ignored', (t) => {
  t.notThrows(() => decodeAuthorization(withMatch({ extensions: [{ name: 'x' }] })));
});

const place = 'rules[0].clauses[1].matches[0]';
const refusals: readonly (readonly [string, Uint8Array, string])[] = [
  [
    'a port above 65535 (case 42)',
    withMatch({ destinationPorts: [80, 65_616] }),
    `${place}.destination_ports[1]: 65616 is above 65535`,
  ],
  [
    'a negated port above 65535',
    withMatch({ notDestinationPorts: [70_000] }),
    `${place}.not_destination_ports[0]: 70000 is above 65535`,
  ],
  [
    'an address of five bytes (case 43)',
    withMatch({ sourceIps: [{ address: new Uint8Array(5) }] }),
    `${place}.source_ips[0]: an IP address has 4 or 16 bytes, not 5`,
  ],
  [
    'an address of five bytes beside another condition (case 44)',
    withMatch({ sourceIps: [{ address: new Uint8Array(5) }], destinationPorts: [8080] }),
    `${place}.source_ips[0]: an IP address has 4 or 16 bytes, not 5`,
  ],
  [
    'no address',
    withMatch({ destinationIps: [{}] }),
    `${place}.destination_ips[0]: an IP address has 4 or 16 bytes, not 0`,
  ],
  [
    'a prefix that is too long',
    withMatch({ notSourceIps: [{ address: new Uint8Array(4), length: 33 }] }),
    `${place}.not_source_ips[0]: prefix length 33 is above 32`,
  ],
  [
    'a prefix beyond 8 bits',
    withMatch({ sourceIps: [{ address: new Uint8Array(4), length: 264 }] }),
    `${place}.source_ips[0]: prefix length 264 is above 32`,
  ],
  [
    'a string without a form',
    withMatch({ notPrincipals: [{ exact: 'a' }, {}] }),
    `${place}.not_principals[1]: must be one of exact, prefix, suffix or presence`,
  ],
  [
    'an unknown scope',
    istio.security.Authorization.encode({ scope: 3 as never }).finish(),
    'scope: unknown value 3',
  ],
  [
    'an unknown action',
    istio.security.Authorization.encode({ action: 2 as never }).finish(),
    'action: unknown value 2',
  ],
  [
    'a condition of a later version',
    istio.security.Authorization.encode({
      rules: [{ clauses: [{ matches: [{ $unknowns: [Uint8Array.of(0xf8, 0x01, 0x01)] }] }] }],
    }).finish(),
    'rules[0].clauses[0].matches[0]: holds a field this version does not know',
  ],
];

for (const [what, bytes, message] of refusals) {
  test(`refused: ${what}`, (t) => {
    t.throws(() => decodeAuthorization(bytes), { code: 'XDS_RESOURCE', message });
  });
}

test('refused: bytes that are no message', (t) => {
  t.throws(() => decodeAuthorization(Uint8Array.of(0x2a, 0x05)), {
    code: 'XDS_RESOURCE',
    message: /^not a valid istio\.security\.Authorization: /,
  });
});
