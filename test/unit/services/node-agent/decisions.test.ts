import test from 'ava';
import { nodeAgentConfig } from '../../../../services/node-agent/config.ts';
import { DEFAULT_SELECTORS, eligibility } from '../../../../services/node-agent/eligibility.ts';
import { parseEnablementSelectors } from '../../../../services/node-agent/enablement-selectors.ts';
import { ListenerWatch } from '../../../../services/node-agent/listener-watch.ts';
import { parseRecord } from '../../../../services/node-agent/pod-directory.ts';
import { podRecord } from '../../../support/pod-records.ts';

const MODE = 'istio.io/dataplane-mode';

test('the truth table of eligibility', (t) => {
  const cases: readonly [Parameters<typeof podRecord>[0], boolean, string][] = [
    [{ uid: 'u', netns: 'n' }, true, 'selected'],
    [{ uid: 'u', netns: 'n', labels: {} }, false, 'not-selected'],
    [
      { uid: 'u', netns: 'n', labels: {}, namespaceLabels: { [MODE]: 'ambient' } },
      true,
      'selected',
    ],
    [
      { uid: 'u', netns: 'n', labels: { [MODE]: 'none' }, namespaceLabels: { [MODE]: 'ambient' } },
      false,
      'opted-out',
    ],
    [{ uid: 'u', netns: 'n', namespaceLabels: { [MODE]: 'none' } }, true, 'selected'],
    [{ uid: 'u', netns: 'n', hostNetwork: true }, false, 'host-network'],
    [{ uid: 'u', netns: 'n', annotations: { 'sidecar.istio.io/status': '' } }, false, 'sidecar'],
    [{ uid: 'u', netns: 'n', namespace: 'kube-system' }, false, 'excluded-namespace'],
  ];
  const rules = { excludedNamespaces: ['kube-system'], selectors: DEFAULT_SELECTORS };
  for (const [changes, enrol, reason] of cases) {
    t.deepEqual(eligibility(podRecord(changes), rules), { enrol, reason });
  }
});

test('other enablement selectors: any of them, both halves of one, an empty half selects everything', (t) => {
  const selectors = parseEnablementSelectors(
    '[{podSelector: {matchExpressions: [{key: tier, operator: Exists}]}, namespaceSelector: {matchLabels: {mesh: "on"}}}, {podSelector: {matchLabels: {join: yes}}, namespaceSelector: {}}]',
  );
  const enrolled = (labels: Record<string, string>, namespaceLabels: Record<string, string>) =>
    eligibility(podRecord({ uid: 'u', netns: 'n', labels, namespaceLabels }), {
      excludedNamespaces: [],
      selectors,
    }).enrol;
  t.true(enrolled({ tier: 'a' }, { mesh: 'on' }));
  t.false(enrolled({ tier: 'a' }, {}));
  t.false(enrolled({ [MODE]: 'ambient' }, { mesh: 'on' }));
  t.true(enrolled({ join: 'yes' }, {}));
});

test('a wrong enablement selector is refused with its place', (t) => {
  const refused = (text: string, message: RegExp): void => {
    t.throws(() => parseEnablementSelectors(text), { message });
  };
  refused('[]', /the list/);
  refused('{}', /the list/);
  refused('[{podSelector: {labels: {}}}]', /0\.podSelector.*labels/);
  refused(
    '[{podSelector: {matchExpressions: [{key: a, operator: Near}]}}]',
    /0\.podSelector\.matchExpressions\.0\.operator/,
  );
  refused('[{podSelector: {matchExpressions: [{key: a, operator: In}]}}]', /values/);
  refused('[{', /flow/i);
});

test('a record names every field that is wrong', (t) => {
  const good = podRecord({ uid: 'u-1', netns: '/run/netns/x' });
  t.deepEqual(parseRecord(JSON.stringify(good), 'u-1.json', 'node-1'), good);
  // Fields of a newer version are ignored.
  t.deepEqual(parseRecord(JSON.stringify({ ...good, surplus: 1 }), 'u-1.json', 'node-1'), good);
  const bad = JSON.stringify({ ...good, netns: '', addresses: 'x', surplus: 1 });
  const error = t.throws(() => parseRecord(bad, 'u-1.json', 'node-1'), { code: 'STATE_INVALID' });
  for (const field of ['netns', 'addresses']) t.regex(error?.message ?? '', RegExp(field));
  t.throws(() => parseRecord(JSON.stringify(good), 'u-2.json', 'node-1'), { message: /uid/ });
  t.throws(() => parseRecord(JSON.stringify(good), 'u-1.json', 'node-2'), { message: /node-1/ });
});

test('missing listeners are first announced again, then restarted ever more rarely', (t) => {
  const watch = new ListenerWatch();
  const missing = ListenerWatch.missing([80, 15_001, 15_008]);
  t.deepEqual(missing, [15_006]);
  t.is(watch.decide(missing, 0), 'add');
  t.is(watch.decide(missing, 3_000), 'restart');
  t.is(watch.decide(missing, 6_000), 'none');
  t.is(watch.decide(missing, 16_000), 'restart');
  t.is(watch.decide(missing, 26_000), 'none');
  t.is(watch.decide([], 27_000), 'none');
  t.is(watch.decide(missing, 28_000), 'add');
});

test('configuration reports all problems, and refuses what is not supported', (t) => {
  const environment = {
    REDIS_URL: 'unix:///run/redis.sock',
    WEFT_NODE_AGENT_PODS_DIR: '/run/pods',
  };
  const config = nodeAgentConfig.parse(environment);
  t.is(config.drainMs, 5_000);
  t.is(config.redirect.dnsCapture, null);
  t.true(config.driftIntervalMs <= 5_000);
  const wrong = {
    ...environment,
    WEFT_NODE_AGENT_PODS_DIR: 'relative',
    HOST_PROBE_SNAT_IP: '::1; reboot',
    FORCE_IPTABLES_BINARY: 'ebtables',
  };
  const error = t.throws(() => nodeAgentConfig.parse(wrong), { code: 'CONFIG_INVALID' });
  for (const name of Object.keys(wrong).slice(1)) t.regex(error?.message ?? '', RegExp(name));
});
