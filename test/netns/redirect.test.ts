import { spawn } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { text as textOf } from 'node:stream/consumers';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import { redirectRules } from '../../lib/redirect/rules.ts';
import { createNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { DEFAULTS, EXPECTED, open, redirector, saved } from '../support/redirect-kit.ts';

for (const flavour of ['nft', 'legacy', 'native'] as const) {
  // spec: inpod.md §5.1
  test(`rules are written, verified, kept and removed (${flavour})`, async (t) => {
    const netns = await createNetns(t);
    const target = open(t, netns);
    const { tool, lockDir } = await redirector(t, flavour);

    const first = await tool.apply(target, EXPECTED);
    t.true(first.fresh);
    t.deepEqual(await tool.check(target, EXPECTED), []);
    const text = await saved(netns, flavour);
    for (const rule of EXPECTED.flatMap((family) => family.rules)) {
      // Each nft has words of its own, but not for the verdicts of these tables.
      const words =
        flavour === 'native'
          ? ` ${rule.nft.slice(rule.nft.indexOf('counter') + 'counter '.length)}`
          : `-A ${rule.chain} ${rule.text}`;
      if (rule.table === 'nat' || flavour !== 'native') t.true(text.includes(`${words}\n`), words);
    }
    for (const family of ['-4', '-6']) {
      t.regex(
        await netns.ip(`${family} rule show`),
        /32764:\tfrom all fwmark 0x111\/0xfff lookup 100/,
      );
      t.regex(await netns.ip(`${family} route show table 100`), /^local default dev lo/);
    }

    t.deepEqual((await tool.apply(target, EXPECTED)).repaired, []);
    t.deepEqual(await readdir(lockDir), []);

    await tool.remove(target);
    t.notRegex(await saved(netns, flavour), /ISTIO_|istio/);
    t.notRegex(await netns.ip('rule show'), /32764/);
    t.is(await netns.ip('route show table all type local 0.0.0.0/0'), '');
    await tool.remove(target);
  });
}

for (const flavour of ['nft', 'legacy'] as const) {
  test(`partial and foreign state is repaired, rules of others stay (${flavour})`, async (t) => {
    const netns = await createNetns(t);
    const target = open(t, netns);
    const { tool } = await redirector(t, flavour);
    const iptables = `iptables-${flavour}`;
    await netns.exec(
      iptables,
      '-t',
      'nat',
      '-A',
      'OUTPUT',
      '-p',
      'tcp',
      '--dport',
      '9',
      '-j',
      'ACCEPT',
    );
    await netns.exec(iptables, '-t', 'nat', '-N', 'ISTIO_OUTPUT');
    await netns.exec(iptables, '-t', 'nat', '-A', 'OUTPUT', '-j', 'ISTIO_OUTPUT');
    await netns.exec(iptables, '-t', 'nat', '-A', 'OUTPUT', '-p', 'tcp', '-j', 'ISTIO_OUTPUT');
    await netns.exec(iptables, '-t', 'raw', '-N', 'ISTIO_PRERT');
    await netns.exec(iptables, '-t', 'raw', '-A', 'PREROUTING', '-j', 'ISTIO_PRERT');

    const result = await tool.apply(target, EXPECTED);
    t.false(result.fresh);
    t.deepEqual(await tool.check(target, EXPECTED), []);

    await netns.exec(iptables, '-t', 'nat', '-D', 'ISTIO_PRERT', '2');
    await netns.exec(iptables, '-t', 'nat', '-D', 'OUTPUT', '-j', 'ISTIO_OUTPUT');
    await netns.exec(`ip6tables-${flavour}`, '-t', 'mangle', '-F', 'ISTIO_OUTPUT');
    await netns.ip('rule del pref 32764');
    await netns.ip('-6 route flush table 100');
    const { repaired, redirected } = await tool.apply(target, EXPECTED);
    t.false(redirected);
    for (const part of [
      /IPv4 nat ISTIO_PRERT lacks/,
      /IPv4 nat OUTPUT must lead to ISTIO_OUTPUT once/,
      /IPv6 mangle ISTIO_OUTPUT lacks/,
      /IPv4 has 0 policy rules/,
      /IPv6 has no local route/,
    ]) {
      t.true(
        repaired.some((line) => part.test(line)),
        String(part),
      );
    }
    t.is(repaired.length, 5);
    t.deepEqual((await tool.apply(target, EXPECTED)).repaired, []);

    await tool.remove(target);
    t.regex(await saved(netns, flavour), /-A OUTPUT -p tcp -m tcp --dport 9 -j ACCEPT/);
  });
}

test('changed, surplus and missing parts of native tables are repaired, tables of others stay', async (t) => {
  const netns = await createNetns(t);
  const target = open(t, netns);
  const { tool } = await redirector(t, 'native');
  const nft = (commands: string): Promise<string> => netns.exec('/usr/sbin/nft', commands);
  await nft('add table inet other; add chain inet other keep; add rule inet other keep accept');
  // Upstream's table of that name, as an istio-cni leaves it.
  await nft('add table inet istio-ambient-nat; add chain inet istio-ambient-nat istio-output');
  // Our own table with a chain of another type.
  await nft('add table ip istio-ambient-nat');
  await nft(
    'add chain ip istio-ambient-nat output { type filter hook output priority 7; policy drop; }',
  );
  t.false((await tool.apply(target, EXPECTED)).fresh);
  t.deepEqual(await tool.check(target, EXPECTED), []);
  for (const [damage, found] of [
    ['flush chain ip istio-ambient-nat istio-output', /IPv4 nat ISTIO_OUTPUT lacks/],
    ['flush chain ip6 istio-ambient-mangle output', /IPv6 mangle OUTPUT must lead/],
    ['insert rule ip istio-ambient-nat prerouting accept', /IPv4 nat ISTIO_PRERT has surplus/],
    ['add chain ip istio-ambient-nat output { policy drop; }', /policy drop/],
    ['add chain ip6 istio-ambient-nat mine; add rule ip6 istio-ambient-nat mine accept', /mine/],
    ['delete table ip istio-ambient-raw', /IPv4 table raw has no chains/],
    ['insert rule ip istio-ambient-nat istio-output accept', /IPv4 nat ISTIO_OUTPUT has surplus/],
  ] as const) {
    await nft(damage);
    const { repaired } = await tool.apply(target, EXPECTED);
    t.true(
      repaired.some((line) => found.test(line)),
      `${damage}: ${repaired.join('; ')}`,
    );
    t.deepEqual((await tool.apply(target, EXPECTED)).repaired, []);
  }
  await tool.remove(target);
  const left = await saved(netns, 'native');
  t.regex(left, /table inet other/);
  t.notRegex(left, /istio/);
});

for (const [before, after] of [
  ['nft', 'native'],
  ['legacy', 'native'],
  ['native', 'nft'],
  ['native', 'legacy'],
  ['legacy', 'nft'],
  ['nft', 'legacy'],
] as const) {
  test(`the rules of an agent with ${before} go when one with ${after} writes its own, or removes`, async (t) => {
    const netns = await createNetns(t);
    const target = open(t, netns);
    const [first, second] = [await redirector(t, before), await redirector(t, after)];
    const everything = async (): Promise<string> =>
      (await saved(netns, 'native')) + (await saved(netns, 'legacy'));
    await first.tool.apply(target, EXPECTED);
    await second.tool.apply(target, EXPECTED);
    t.deepEqual(await second.tool.check(target, EXPECTED), []);
    t.true((await first.tool.check(target, EXPECTED)).length > 0);
    t.is((await everything()).match(/dport (?:!= )?15008/g)?.length, 2);
    await first.tool.apply(target, EXPECTED);
    await second.tool.remove(target);
    t.notRegex(await everything(), /istio/i);
  });
}

for (const way of ['nft', 'native'] as const) {
  test(`a namespace that no rule was ever written to is left without a process (${way})`, async (t) => {
    // The kernel lists legacy tables from now on.
    const other = open(t, await createNetns(t));
    const legacy = (await redirector(t, 'legacy')).tool;
    await legacy.apply(other, EXPECTED);
    const { tool } = await redirector(t, way);
    const target = open(t, await createNetns(t));
    let removed = false;
    const removal = tool.remove(target).then(() => (removed = true));
    await new Promise((resolve) => void setImmediate(resolve));
    t.true(removed, 'no process was waited for');
    await removal;

    await tool.remove(other);
    t.false(await legacy.redirected(other, EXPECTED), 'legacy tables are looked into');
  });
}

for (const flavour of ['nft', 'legacy'] as const) {
  test(`a kernel without conntrack zones gets all other rules, and loses what it cannot keep (${flavour})`, async (t) => {
    const netns = await createNetns(t);
    const target = open(t, netns);
    const tools = await chooseTools({ ipv6: true, force: flavour, lockDir: '/tmp' });
    t.true(tools.zones);
    const whole = new Redirector(tools, '/tmp');
    await whole.apply(target, EXPECTED);
    const poor = new Redirector({ ...tools, zones: false }, '/tmp');
    t.is((await poor.apply(target, EXPECTED)).repaired.length, 2);
    t.notRegex(await saved(netns, flavour), /CT --zone/);
    t.deepEqual(await poor.check(target, EXPECTED), []);
    // The newer agent finds a pod as an older one left it.
    const { repaired, fresh, redirected } = await whole.apply(target, EXPECTED);
    t.false(fresh);
    t.true(redirected);
    t.deepEqual(repaired, ['IPv4 table raw has no chains', 'IPv6 table raw has no chains']);
    t.deepEqual(await whole.check(target, EXPECTED), []);
  });
}

/** Puts a restore program before the real one, with the restored file as `$1`. The machine's own lock is held meanwhile. */
async function chosenBehind(
  force: 'nft' | 'legacy',
  before: string,
): Promise<{ readonly zones: boolean; readonly noZones: string | null }> {
  const script = new URL('../support/choose-tools-process.ts', import.meta.url).pathname;
  const program = `iptables-${force}-restore`;
  // A private mount namespace hides the program and the lock from other processes.
  const setup = `
    set -e
    mount -t tmpfs none /run && mount -t tmpfs none /usr/local/sbin
    cat > /usr/local/sbin/${program}
    chmod 755 /usr/local/sbin/${program}
    exec flock /run/xtables.lock "$0" "$@"`;
  const child = spawn('unshare', ['--mount', 'sh', '-c', setup, process.execPath, script, force], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  child.stdin.end(`#!/bin/sh
input=$(cat)
${before}
printf '%s\\n' "$input" | /usr/sbin/${program} "$@"
`);
  return JSON.parse(await textOf(child.stdout)) as { zones: boolean; noZones: string | null };
}

for (const force of ['nft', 'legacy'] as const) {
  test(`zones are not given up for what fails in passing, and else it is known why (${force})`, async (t) => {
    const once = "mkdir /run/met 2>/dev/null && { echo 'not now' >&2; exit 4; }";
    t.like(await chosenBehind(force, once), { zones: true, noZones: null });
    const never = `case $input in *raw*) echo 'zones are unknown here' >&2; exit 2;; esac`;
    const { zones, noZones } = await chosenBehind(force, never);
    t.false(zones);
    t.regex(noZones ?? '', /exit status 2: zones are unknown here$/);
  });
}

for (const way of ['nft', 'native'] as const) {
  test(`every combination of options is read back as written (${way})`, async (t) => {
    const netns = await createNetns(t);
    const target = open(t, netns);
    const { tool } = await redirector(t, way);
    for (const dns of ['true', 'false']) {
      for (const bypass of ['true', 'false']) {
        for (const interfaces of ['', 'vnet0,tap+']) {
          const annotations = {
            'ambient.istio.io/dns-capture': dns,
            'ambient.istio.io/bypass-inbound-capture': bypass,
            'istio.io/reroute-virtual-interfaces': interfaces,
          };
          const { options, warnings } = podRedirect(annotations, DEFAULTS);
          t.deepEqual(warnings, []);
          const expected = redirectRules(options);
          await tool.apply(target, expected);
          t.deepEqual(await tool.check(target, expected), []);
        }
      }
    }
    t.deepEqual(await tool.check(target, EXPECTED).then((found) => found.length > 0), true);
  });
}

for (const flavour of ['nft', 'legacy'] as const) {
  test(`the fingerprint sees changed rules and lost policy routing, and no traffic (${flavour})`, async (t) => {
    const netns = await createNetns(t);
    const target = open(t, netns);
    const { tool } = await redirector(t, flavour);
    let { fingerprint } = await tool.apply(target, EXPECTED);
    const unchanged = (): boolean => {
      const full = tool.unchanged(target, EXPECTED, fingerprint, 'full');
      t.is(tool.unchanged(target, EXPECTED, fingerprint, 'quick'), full);
      return full;
    };
    t.true(unchanged());
    // Packets change the counters of rules and chains.
    await netns.exec('bash', '-c', 'echo hello >/dev/udp/127.0.0.1/9');
    t.regex(await netns.exec(`iptables-${flavour}-save`, '-c'), /\[[1-9]\d*:\d+\]/);
    t.true(unchanged());
    for (const change of ['nat -F ISTIO_OUTPUT', 'mangle -P OUTPUT DROP', 'raw -N EMPTY']) {
      await netns.exec(`iptables-${flavour}`, '-t', ...change.split(' '));
      t.false(unchanged(), change);
      ({ fingerprint } = await tool.apply(target, EXPECTED));
      t.true(unchanged());
    }
    await netns.ip('-6 rule del pref 32764');
    t.false(unchanged());
  });
}

test('a namespace without IPv6 loopback gets rules but no route', async (t) => {
  const netns = await createNetns(t);
  const target = open(t, netns);
  await netns.exec('sysctl', '-qw', 'net.ipv6.conf.lo.disable_ipv6=1');
  const { tool } = await redirector(t, 'nft');
  await tool.apply(target, EXPECTED);
  t.deepEqual(await tool.check(target, EXPECTED), []);
  t.is(await netns.ip('-6 route show table 100').catch(() => ''), '');
});

for (const flavour of ['nft', 'legacy'] as const) {
  test(`a failing command names itself and leaves nothing running, and no lock (${flavour})`, async (t) => {
    const netns = await createNetns(t);
    const target = open(t, netns);
    const { tool, lockDir } = await redirector(t, flavour);
    const broken = EXPECTED.map((family) => ({
      ...family,
      rules: [
        ...family.rules,
        { table: 'nat', chain: 'ISTIO_OUTPUT', text: '-j NOWHERE', nft: '' } as const,
      ],
    }));
    const error = await t.throwsAsync(tool.apply(target, broken), { code: 'NETNS_RULES' });
    t.regex(error?.message ?? '', /NOWHERE|line \d+ failed|RULE_APPEND/);
    t.notRegex(await saved(netns, flavour), /REDIRECT/);
    t.deepEqual(await readdir(lockDir), []);
  });
}
