/** Tests failed starts: each takes everything down and prints the reason. */
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { spawn } from 'node:child_process';
import type { ExecutionContext } from 'ava';
import { makeScratch, meshName } from '../../support/leftovers.ts';
import { netnsTest } from '../../support/netns-test.ts';
import { until } from '../../support/until.ts';
import { userEnvironment } from '../../support/user-environment.ts';

const WEFT = new URL('../../../services/cli/weft', import.meta.url).pathname;

/** Runs `weft up` for a new mesh. */
function up(args: readonly string[], added: Readonly<Record<string, string>> = {}) {
  const mesh = meshName();
  const child = spawn(WEFT, ['up', ...args], {
    env: { ...userEnvironment(), WEFT_MESH: mesh, ...added },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const closed = new Promise<number | null>((resolve) => child.once('close', resolve));
  return { mesh, child, said: () => said, closed };
}

async function leavesNothing(t: ExecutionContext, mesh: string): Promise<void> {
  const found = [...(await readdir('/run')), ...(await readdir('/run/netns'))];
  t.deepEqual(
    found.filter((name) => name.includes(mesh)),
    [],
  );
}

netnsTest('a misspelt variable is refused before anything is made', async (t) => {
  const run = up([], { WEFT_ACCES_LOG: 'errors' });
  t.is(await run.closed, 78);
  t.is(
    run.said(),
    'weft: invalid configuration: WEFT_ACCES_LOG is unknown, did you mean WEFT_ACCESS_LOG?\n',
  );
  await leavesNothing(t, run.mesh);
});

netnsTest('a mesh on demand with the DNS proxy is refused before anything is made', async (t) => {
  const run = up([], { XDS_ON_DEMAND: 'true', AMBIENT_DNS_CAPTURE: 'true' });
  t.is(await run.closed, 78);
  t.is(
    run.said(),
    'weft: invalid configuration: AMBIENT_DNS_CAPTURE=true cannot be used with XDS_ON_DEMAND=true: a mesh on demand has no DNS proxy, which needs all names\n',
  );
  await leavesNothing(t, run.mesh);
});

for (const args of [['--wait'], ['--detach', '--wait']]) {
  netnsTest(
    `up ${args.join(' ')} with a setting an actor refuses ends with its words`,
    async (t) => {
      t.timeout(280_000);
      const run = up(args, { SECRET_TTL: 'bogus' });
      t.is(await run.closed, 78);
      t.regex(
        run.said(),
        /cert-fetcher refuses its configuration: .*SECRET_TTL must be a duration.*"bogus"\n$/,
      );
      await leavesNothing(t, run.mesh);
    },
  );
}

netnsTest('manifests that are refused take the mesh down, and are named', async (t) => {
  t.timeout(280_000);
  const folder = await makeScratch('start');
  t.teardown(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, 'bad.yaml'), 'kind: Foo\n');
  for (const args of [[], ['--detach']]) {
    const run = up([...args, '--manifests', folder]);
    t.is(await run.closed, 1);
    t.regex(run.said(), /bad\.yaml: document 0: kind: unknown kind "Foo"/);
    await leavesNothing(t, run.mesh);
  }
});

for (const step of ['namespaces of', 'redis, users', 'actors started']) {
  netnsTest(`Ctrl-C after "${step}" takes everything down`, async (t) => {
    t.timeout(280_000);
    const run = up(['--wait']);
    await until(() => run.said().includes(step), { what: step, timeoutMs: 60_000 });
    run.child.kill('SIGINT');
    t.is(await run.closed, 130);
    await leavesNothing(t, run.mesh);
  });
}
