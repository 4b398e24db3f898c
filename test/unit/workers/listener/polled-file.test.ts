import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { FILE_CHECK_MS } from '../../../../workers/listener/dns/limits.ts';
import { followResolvConf } from '../../../../workers/listener/dns/polled-file.ts';
import { capturedLog } from '../../../support/bus.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { makeScratch } from '../../../support/leftovers.ts';
import { until } from '../../../support/until.ts';

test('a file that is missing is named once, and again after it was there', async (t) => {
  const dir = await makeScratch('polled');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'resolv.conf');
  const clock = new FakeClock();
  const { log, lines } = capturedLog();
  const resolvers = followResolvConf(path, { clock, log });
  const named = (): number =>
    lines.filter(({ message }) => message === 'dns.file-unreadable').length;
  /** Looks at the file a few times. */
  const look = async (server: string | undefined): Promise<void> => {
    for (let times = 0; times < 5; times += 1) {
      await clock.advance(FILE_CHECK_MS);
      await until(() => resolvers.current.servers[0] === server, { what: `server ${server}` });
    }
  };
  await look(undefined);
  t.is(named(), 1);
  await writeFile(path, 'nameserver 192.0.2.1\n');
  await look('192.0.2.1');
  await rm(path);
  await look('192.0.2.1');
  // Asking begins the next read, when the last one began before the file was gone.
  await until(() => resolvers.current.servers.length === 1 && named() === 2, {
    what: 'the second line',
  });
  await look('192.0.2.1');
  t.is(named(), 2);
});
