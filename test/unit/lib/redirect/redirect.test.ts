import test from 'ava';
import { differences, remains } from '../../../../lib/redirect/compare.ts';
import { parseSave } from '../../../../lib/redirect/observed.ts';
import type { ObservedFamily } from '../../../../lib/redirect/observed.ts';
import { podRedirect } from '../../../../lib/redirect/pod-options.ts';
import { renderRemove, renderRestore } from '../../../../lib/redirect/render.ts';
import {
  KEPT_SOURCE_MARK,
  PROXY_PACKET_MARK,
  redirectRules,
} from '../../../../lib/redirect/rules.ts';
import type { FamilyRules, Rule } from '../../../../lib/redirect/rules.ts';

const DEFAULTS = {
  ipv6: true,
  dnsCapture: false,
  probeAddress: { v4: '169.254.7.127', v6: 'fd16::1' },
};
const NO_POLICY = { rules: [], routes: [] };

function rules(annotations: Record<string, string> = {}): readonly FamilyRules[] {
  return redirectRules(podRedirect(annotations, DEFAULTS).options);
}

function chain(family: FamilyRules | undefined, table: string, name: string): readonly Rule[] {
  return (family?.rules ?? []).filter((rule) => rule.table === table && rule.chain === name);
}

/** Turns restore text into the text that a save would print. */
function observe(family: 4 | 6, text: string): ObservedFamily {
  return { family, tables: parseSave(text.replaceAll(/^-I /gm, '-A ')), policy: NO_POLICY };
}

test('IPv6 has the rules of IPv4 with its own addresses', (t) => {
  const [v4, v6] = rules();
  const translated = v4?.rules.map((rule) => ({
    ...rule,
    text: rule.text.replace('127.0.0.1/32', '::1/128').replace('169.254.7.127/32', 'fd16::1/128'),
    nft: rule.nft
      .replace(/\bip (?=[sd]addr )/, 'ip6 ')
      .replace('127.0.0.1', '::1')
      .replace('169.254.7.127', 'fd16::1'),
  }));
  t.deepEqual(v6?.rules, translated);
  t.is(redirectRules({ ...podRedirect({}, DEFAULTS).options, ipv6: false }).length, 1);
});

test('the exemptions come before the capture of everything else', (t) => {
  const [v4] = rules();
  const outbound = chain(v4, 'nat', 'ISTIO_OUTPUT').map((rule) => rule.text);
  const capture = outbound.findIndex((text) => text.includes('--to-ports 15001'));
  t.is(capture, outbound.length - 1);
  t.true(outbound.findIndex((text) => text.includes('--mark 0x111/0xfff -j ACCEPT')) < capture);
  t.true(outbound.findIndex((text) => text.includes('-o lo -j ACCEPT')) < capture);
  const inbound = chain(v4, 'nat', 'ISTIO_PRERT').map((rule) => rule.text);
  t.true(inbound[0]?.includes('-s 169.254.7.127/32') && inbound[0].endsWith('ACCEPT'));
  t.true(inbound[1]?.includes('! --dport 15008') && inbound[1].endsWith('--to-ports 15006'));
});

test('a socket with the client address is told by a bit that no other rule looks at', (t) => {
  t.is(KEPT_SOURCE_MARK & 0xfff, PROXY_PACKET_MARK);
  for (const family of rules()) {
    const [zone, ...others] = chain(family, 'raw', 'ISTIO_OUTPUT');
    t.deepEqual(others, []);
    t.is(zone?.text, '-p tcp -m mark --mark 0x1539/0x1fff -j CT --zone-orig 2');
    const rest = family.rules.filter((rule) => rule !== zone);
    t.deepEqual(
      rest.filter((rule) => rule.needs !== undefined),
      [],
    );
    for (const { text } of rest) t.notRegex(text, /--mark (?!0x539\/0xfff|0x111\/0xfff)/);
  }
});

test('annotations change what the specification says they change', (t) => {
  const [bypass] = rules({ 'ambient.istio.io/bypass-inbound-capture': 'true' });
  t.deepEqual(chain(bypass, 'nat', 'ISTIO_PRERT'), []);
  t.deepEqual(chain(bypass, 'nat', 'ISTIO_OUTPUT'), chain(rules()[0], 'nat', 'ISTIO_OUTPUT'));

  const [dns] = rules({ 'ambient.istio.io/dns-capture': 'true' });
  t.is(chain(dns, 'nat', 'ISTIO_OUTPUT').filter((rule) => /15053/.test(rule.text)).length, 2);
  t.is(chain(dns, 'raw', 'ISTIO_OUTPUT').length + chain(dns, 'raw', 'ISTIO_PRERT').length, 3);

  const [interfaces] = rules({ 'istio.io/reroute-virtual-interfaces': 'vnet0, tap+' });
  t.deepEqual(
    chain(interfaces, 'nat', 'ISTIO_PRERT')
      .slice(0, 4)
      .map((rule) => rule.text),
    [
      '-i vnet0 -p tcp -j REDIRECT --to-ports 15001',
      '-i vnet0 -p tcp -j RETURN',
      '-i tap+ -p tcp -j REDIRECT --to-ports 15001',
      '-i tap+ -p tcp -j RETURN',
    ],
  );
});

test('annotations that are not understood are ignored by name, and reach no rule', (t) => {
  const { options, warnings } = podRedirect(
    {
      'ambient.istio.io/bypass-inbound-capture': 'maybe',
      'istio.io/reroute-virtual-interfaces': 'ok0,$(reboot),way-too-long-for-a-name',
    },
    DEFAULTS,
  );
  t.false(options.bypassInboundCapture);
  t.deepEqual(options.virtualInterfaces, ['ok0']);
  t.is(warnings.length, 3);
  const refused = podRedirect(
    { 'ambient.istio.io/dns-capture': 'true' },
    { ...DEFAULTS, dnsCapture: null },
  );
  t.false(refused.options.dnsCapture);
  t.regex(refused.warnings[0] ?? '', /AMBIENT_DNS_CAPTURE/);
});

test('what is rendered is what is read back, from nothing and from any residue', (t) => {
  const [v4] = rules({ 'ambient.istio.io/dns-capture': 'true' });
  if (v4 === undefined) throw new Error('no rules');
  const text = renderRestore(v4, observe(4, ''));
  const policy = {
    rules: [{ priority: 32_764, mark: 0x111, mask: 0xfff, table: 100, prohibits: false }],
    routes: [{ local: true, prefixLength: 0 }],
  };
  t.deepEqual(differences(v4, { ...observe(4, text), policy }, true), []);
  t.deepEqual(differences(v4, observe(4, text), false).length, 1);

  const residue = observe(
    4,
    [
      '*nat',
      ':OUTPUT ACCEPT [0:0]',
      ':ISTIO_OUTPUT - [0:0]',
      '-A OUTPUT -p udp -j ISTIO_OUTPUT',
      '-A OUTPUT -j ACCEPT',
      '-A ISTIO_OUTPUT -j RETURN',
      'COMMIT',
    ].join('\n'),
  );
  const repaired = renderRestore(v4, residue);
  t.regex(repaired, /-D OUTPUT -p udp -j ISTIO_OUTPUT/);
  t.notRegex(repaired, /-D OUTPUT -j ACCEPT/);
  t.true(differences(v4, residue, true).length > 5);
});

test('order and doubles count as differences', (t) => {
  const [v4] = rules();
  if (v4 === undefined) throw new Error('no rules');
  const text = renderRestore(v4, observe(4, ''));
  const probe = '-A ISTIO_OUTPUT -d 169.254.7.127/32 -p tcp -j ACCEPT\n';
  const doubled = observe(4, text.replace(probe, probe + probe));
  t.regex(differences(v4, doubled, false).join(), /another order or twice/);
  const moved = observe(4, text.replace(probe, '').replace(/(COMMIT\n)$/, `${probe}$1`));
  t.regex(differences(v4, moved, false).join(), /another order or twice/);
});

test('a rule of others before a jump counts as a difference in the table that redirects', (t) => {
  const [v4] = rules();
  if (v4 === undefined) throw new Error('no rules');
  const text = renderRestore(v4, observe(4, '')).replaceAll(/^-I /gm, '-A ');
  const before = (table: string): ObservedFamily =>
    observe(4, text.replace(`*${table}\n`, `*${table}\n-A OUTPUT -p tcp -j ACCEPT\n`));
  t.deepEqual(differences(v4, before('mangle'), false), differences(v4, observe(4, text), false));
  const found = differences(v4, before('nat'), false);
  t.is(found[0], 'IPv4 nat OUTPUT has rules of others before ISTIO_OUTPUT');
  const after = observe(4, text.replaceAll('COMMIT\n', '-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n'));
  t.deepEqual(differences(v4, after, false), differences(v4, observe(4, text), false));
});

test('removal leaves nothing of ours and names no chain of others', (t) => {
  const [v4] = rules();
  if (v4 === undefined) throw new Error('no rules');
  const observed = observe(4, renderRestore(v4, observe(4, '')));
  t.deepEqual(remains(observed), ['IPv4 table raw', 'IPv4 table mangle', 'IPv4 table nat']);
  const text = renderRemove(observed);
  t.true(text.startsWith('*nat'));
  t.is(text.match(/^-X ISTIO_/gm)?.length, 6);
  t.is(text.match(/^-D (?:PREROUTING|OUTPUT) -j ISTIO_/gm)?.length, 6);
  t.deepEqual(remains(observe(4, '# nothing\n')), []);
});
