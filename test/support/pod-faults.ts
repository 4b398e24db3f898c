/** Servers and faults inside a pod's namespace. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { TestNetns } from './netns-kit.ts';
import { until } from './until.ts';

/** Starts a server that belongs to no mesh: it closes every connection. */
export async function listenIn(netns: TestNetns, port: number): Promise<ChildProcess> {
  const program = `require('node:net').createServer((socket) => socket.end()).listen(${port}, '::')`;
  const server = netns.spawn(process.execPath, ['-e', program]);
  await until(async () => (await netns.exec('ss', '-ltnH')).includes(`:${port} `), {
    what: `a server at ${port}`,
  });
  return server;
}

/**
 * Takes the rules of IPv4 away and holds their table, so that no other program can write it, until the returned function is called.
 * The table has this chain as long.
 */
export async function seizeTable(pod: TestNetns, chain?: string): Promise<() => Promise<void>> {
  const held = chain === undefined ? '' : `chain ${chain} { };`;
  const nft = pod.spawn('/usr/sbin/nft', ['-i'], { stdio: ['pipe', 'ignore', 'inherit'] });
  // One line is one transaction: nobody's repair comes between.
  nft.stdin?.write(
    `add table ip nat; delete table ip nat; add table ip nat { flags owner; ${held} }\n`,
  );
  await until(
    async () => (await pod.exec('/usr/sbin/nft', 'list', 'ruleset')).includes('flags owner'),
    { what: 'the table to be held' },
  );
  return async () => {
    const ended = once(nft, 'exit');
    nft.stdin?.end();
    await ended;
  };
}
