import test from 'ava';
import { podRedirect } from '../../../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../../../lib/redirect/rules.ts';
import { MAX_RULE_SETS } from '../../../../services/node-agent/limits.ts';
import { RuleSets } from '../../../../services/node-agent/rule-sets.ts';

const DEFAULTS = {
  ipv6: true,
  dnsCapture: true,
  probeAddress: { v4: '169.254.7.127', v6: 'fd16::1' },
};
const INTERFACES = 'istio.io/reroute-virtual-interfaces';

test('pods that ask for the same share their rules, others have their own', (t) => {
  const sets = new RuleSets(DEFAULTS);
  const { rules } = sets.of({});
  t.deepEqual(rules, redirectRules(podRedirect({}, DEFAULTS).options));
  t.is(sets.of({ 'some.other/annotation': 'x' }).rules, rules);
  const annotations = { [INTERFACES]: 'tap0' };
  const own = sets.of(annotations).rules;
  t.deepEqual(own, redirectRules(podRedirect(annotations, DEFAULTS).options));
  t.notDeepEqual(own, rules);
});

test('what is not understood is told for each pod', (t) => {
  const sets = new RuleSets(DEFAULTS);
  const annotations = { [INTERFACES]: 'no interface has / in its name' };
  t.is(sets.of(annotations).warnings.length, 1);
  t.is(sets.of(annotations).warnings.length, 1);
});

test('of too many sets the one asked for longest ago is made anew', (t) => {
  const sets = new RuleSets(DEFAULTS);
  const of = (index: number) => sets.of({ [INTERFACES]: `tap${index}` }).rules;
  const first = of(0);
  const second = of(1);
  for (let index = 2; index < MAX_RULE_SETS; index += 1) of(index);
  t.is(of(0), first);
  of(MAX_RULE_SETS);
  t.is(of(0), first);
  t.not(of(1), second);
  t.deepEqual(of(1), second);
});
