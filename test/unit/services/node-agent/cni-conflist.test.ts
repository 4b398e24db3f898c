/** Lists of CNI plugins as primary plugins write them, with Weft's entry added and taken away. */
import { readFileSync } from 'node:fs';
import test from 'ava';
import {
  findPrimary,
  hasPlugin,
  readNetworkList,
  sortsBefore,
  withPlugin,
  withoutPlugin,
} from '../../../../services/node-agent/cni/conflist.ts';

const fixture = (name: string): string =>
  readFileSync(new URL(`../../../cni/fixtures/${name}`, import.meta.url), 'utf8');
const entry = {
  type: 'weft-cni',
  cni_agent_run_dir: '/run/x',
  exclude_namespaces: ['kube-system'],
};
const LISTS = [
  '10-calico.conflist',
  '05-cilium.conflist',
  '10-flannel.conflist',
  '10-aws.conflist',
];

interface List {
  readonly plugins: readonly { readonly type: string }[];
  readonly [field: string]: unknown;
}

for (const file of LISTS) {
  test(`${file}: the entry comes last, and all else stays`, (t) => {
    const text = fixture(file);
    const changed = withPlugin(readNetworkList(file, text), entry);
    const before = JSON.parse(text) as List;
    const after = JSON.parse(changed) as List;
    t.deepEqual(after, { ...before, plugins: [...before.plugins, entry] });
    const again = readNetworkList(file, changed);
    t.true(hasPlugin(again, entry));
    t.is(withPlugin(again, entry), changed, 'a second time changes nothing');
    t.deepEqual(JSON.parse(withoutPlugin(again) ?? 'null'), before);
  });
}

test('a single plugin becomes a list of its name and version', (t) => {
  const text = fixture('10-bridge.conf');
  const list = JSON.parse(withPlugin(readNetworkList('10-bridge.conf', text), entry)) as List;
  const { cniVersion, ...plugin } = JSON.parse(text) as Record<string, unknown>;
  t.deepEqual(list, { cniVersion, name: 'bridge', plugins: [plugin, entry] } as never);
});

test('a single plugin without name and version gets those of istio-cni', (t) => {
  const list = JSON.parse(withPlugin(readNetworkList('a.conf', '{"type":"x"}'), entry)) as List;
  t.is(list['name'], 'k8s-pod-network');
  t.is(list['cniVersion'], '0.3.1');
});

test('an entry with other settings, or in another place, is replaced', (t) => {
  const old = { type: 'weft-cni', cni_agent_run_dir: '/old' };
  const text = JSON.stringify({ name: 'n', plugins: [old, { type: 'bridge' }] });
  const list = readNetworkList('a.conflist', text);
  t.false(hasPlugin(list, entry));
  t.deepEqual((JSON.parse(withPlugin(list, entry)) as List).plugins, [{ type: 'bridge' }, entry]);
});

test('numbers keep their digits', (t) => {
  const text = '{"name":"n","plugins":[{"type":"x","big":12345678901234567890,"one":1.0}]}';
  const changed = withPlugin(readNetworkList('a.conflist', text), entry);
  t.regex(changed, /"big": 12345678901234567890,\s+"one": 1\.0\b/);
});

test('a text that no runtime reads is refused', (t) => {
  for (const file of ['commented.conflist', 'trailing-comma.conflist']) {
    t.throws(() => readNetworkList(file, fixture(file)), { message: /is no JSON/ }, file);
  }
  const bad: readonly (readonly [string, string, RegExp])[] = [
    ['a.conf', '{}', /has no type/],
    ['a.conf', '[]', /must be an object/],
    ['a.conflist', '{"plugins":[{"type":"x"}]}', /has no name/],
    ['a.conflist', '{"name":"n","plugins":[]}', /plugins must be/],
    ['a.conflist', '{"name":"n","plugins":[{"typ":"x"}]}', /plugins must be/],
    ['a.conflist', '', /is no JSON/],
  ];
  for (const [file, text, message] of bad) {
    t.throws(() => readNetworkList(file, text), { message, code: 'CONFIG_INVALID' });
  }
});

test('the primary is the first valid file by the bytes of its name', (t) => {
  const files = new Map([
    ['10-flannel.conflist', fixture('10-flannel.conflist')],
    [
      '02-weft-cni.conflist',
      withPlugin(readNetworkList('x.conflist', fixture('10-aws.conflist')), entry),
    ],
    ['01-broken.conflist', fixture('commented.conflist')],
    ['00-readme.txt', 'not for runtimes'],
    ['05-cilium.conflist', fixture('05-cilium.conflist')],
    ['03-only-weft.conflist', JSON.stringify({ name: 'n', plugins: [entry] })],
  ]);
  const { primary, refused } = findPrimary(files, '02-weft-cni.conflist', null);
  t.is(primary?.file, '05-cilium.conflist');
  t.deepEqual(
    refused.map(({ file }) => file),
    ['01-broken.conflist', '03-only-weft.conflist'],
  );
  t.is(findPrimary(files, null, '10-flannel.conf').primary?.file, '10-flannel.conflist');
  t.is(findPrimary(files, null, 'nowhere.conf').primary, null);
});

test('names sort as in Go', (t) => {
  t.true(sortsBefore('02-weft-cni.conflist', '05-cilium.conflist'));
  t.true(sortsBefore('00-multus.conf', '02-weft-cni.conflist'));
  t.true(sortsBefore('10-B.conf', '10-a.conf'));
});
