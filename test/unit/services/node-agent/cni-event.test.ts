/** The event of the CNI plugin, and what the plugin's helper is made of. */
import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import test from 'ava';
import { readAddEvent } from '../../../../services/node-agent/cni/add-event.ts';
import { HELPER_SCRIPTS } from '../../../../services/node-agent/cni/helper-files.ts';

const ROOT = new URL('../../../..', import.meta.url).pathname;
/** As an unmodified istio-cni plugin sends it. */
const ISTIO = {
  Netns: '/var/run/netns/cni-1',
  PodName: 'web',
  PodNamespace: 'demo',
  IPs: [
    { Interface: 0, Address: { IP: '10.0.0.5', Mask: '/////w==' }, Gateway: '10.0.0.1' },
    { Interface: null, Address: { IP: 'fd00::5', Mask: '//////////8AAAAAAAAAAA==' } },
  ],
};

test("istio-cni's event is read", (t) => {
  t.deepEqual(readAddEvent(ISTIO), {
    netns: '/var/run/netns/cni-1',
    namespace: 'demo',
    name: 'web',
    uid: null,
    addresses: ['10.0.0.5', 'fd00::5'],
    agentDecides: false,
  });
  t.deepEqual(readAddEvent({ ...ISTIO, IPs: null }).addresses, []);
});

test("Weft's event tells the uid, and leaves the decision to the agent", (t) => {
  const event = readAddEvent({ ...ISTIO, PodUID: 'u-1', ContainerID: 'c', AgentDecides: true });
  t.is(event.uid, 'u-1');
  t.true(event.agentDecides);
});

test('a malformed event names every wrong field', (t) => {
  const error = t.throws(() =>
    readAddEvent({ ...ISTIO, Netns: 'x', PodName: '', IPs: [{ Address: { IP: '10.0.0.500' } }] }),
  );
  for (const field of ['Netns', 'PodName', 'IPs.0.Address.IP']) {
    t.true(error.message.includes(`${field}: `), error.message);
  }
  for (const body of [
    null,
    [],
    'x',
    1,
    { ...ISTIO, IPs: Array.from({ length: 65 }, () => ISTIO.IPs[0]) },
  ]) {
    t.throws(() => readAddEvent(body), { code: 'CONFIG_INVALID' });
  }
});

test('the helper imports nothing that is not copied to the host', (t) => {
  for (const path of HELPER_SCRIPTS) {
    const text = readFileSync(join(ROOT, path), 'utf8');
    for (const [, target = ''] of text.matchAll(/^import (?!type )[^;]*?from '([^']+)'/gm)) {
      if (target.startsWith('node:')) continue;
      const file = normalize(join(dirname(path), target));
      t.true((HELPER_SCRIPTS as readonly string[]).includes(file), `${path} imports ${target}`);
    }
  }
});
