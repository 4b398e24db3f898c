/** Tests the checks of a node proxy before it serves any pod. */
import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { promisify } from 'node:util';
import { makeScratch } from '../support/leftovers.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { startTestRedis } from '../support/redis.ts';

const run = promisify(execFile);
const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

for (const [dropped, named] of [
  ['-sys_admin', /node-proxy lacks CAP_SYS_ADMIN \(to enter the pods' network namespaces\)/],
  ['-net_admin,-net_raw', /node-proxy lacks CAP_NET_ADMIN or CAP_NET_RAW \(to mark sockets\)/],
] as const) {
  // spec: inpod.md §1
  test(`without ${dropped} a node proxy does not start and names what it lacks`, async (t) => {
    const redis = await startTestRedis(t);
    const env = {
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      ...redis.environment('node-proxy.node-1'),
      NODE_NAME: 'node-1',
      CA_ROOT_CA: '/etc/hostname',
    };
    const limited = [`--bounding-set=${dropped}`, WEFT, 'run', 'node-proxy'];
    const failed = await run('setpriv', limited, { env }).then(
      () => null,
      (error: unknown) => error as Ended,
    );
    t.not(failed, null);
    t.true((failed?.code ?? 0) > 0);
    t.regex(`${failed?.stdout}${failed?.stderr}`, named);
  });
}

test('a node proxy whose peers would be verified against a public root does not start', async (t) => {
  const redis = await startTestRedis(t);
  const dir = await makeScratch('public-root');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const roots = join(dir, 'ca-certificates.crt');
  await writeFile(roots, rootCertificates.slice(0, 3).join('\n'));
  const env = {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    ...redis.environment('node-proxy.node-1'),
    NODE_NAME: 'node-1',
    CA_ROOT_CA: roots,
  };
  const failed = await run(WEFT, ['run', 'node-proxy'], { env, timeout: 60_000 }).then(
    () => null,
    (error: unknown) => error as Ended,
  );
  t.regex(
    `${failed?.stdout}${failed?.stderr}`,
    /peers would be verified against a public root, .*: set WEFT_MESH_ROOT_CA to the roots of the mesh/,
  );
});
