import { readFile, readdir } from 'node:fs/promises';
import test from 'ava';
import { meshPaths, tokenFile } from '../../../../services/local-mesh/mesh-paths.ts';
import { TokenIssuer } from '../../../../services/local-mesh/tokens.ts';
import { planMesh } from '../../../../services/local-mesh/topology.ts';
import { capturedLog } from '../../../support/bus.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { makeScratch } from '../../../support/leftovers.ts';
import { until } from '../../../support/until.ts';

const HALF_LIFE_MS = 1_800_000;

async function rig(onMinted: () => Promise<void>) {
  const paths = meshPaths('weft', { WEFT_RUN_DIR: await makeScratch('tokens') });
  const clock = new FakeClock();
  const { log, lines } = capturedLog();
  const issuer = new TokenIssuer(planMesh('weft', 1), paths, { clock, log, onMinted });
  const tokens = async (): Promise<readonly string[]> => {
    const bearers = (await readdir(paths.tokensDir, { withFileTypes: true })).filter((entry) =>
      entry.isDirectory(),
    );
    return Promise.all(bearers.map(({ name }) => readFile(tokenFile(paths, name), 'utf8')));
  };
  return { issuer, clock, lines, tokens };
}

test('tokens are renewed at half of their life, and soon again after a failure', async (t) => {
  let minted = 0;
  const { issuer, clock, lines, tokens } = await rig(() => {
    minted += 1;
    return minted === 2 ? Promise.reject(new Error('disk full')) : Promise.resolve();
  });
  await issuer.start();
  const first = await tokens();
  t.is(first.length, 3);
  await clock.advance(HALF_LIFE_MS);
  await until(() => lines.some((line) => line['message'] === 'tokens.renewal-failed'), {
    what: 'the failure',
  });
  await clock.advance(30_000);
  await until(() => minted === 3, { what: 'the next attempt' });
  const later = await tokens();
  t.true(first.every((token) => !later.includes(token)));
  await issuer.stop();
});

test('a stop during a renewal waits for it, and nothing is renewed any more', async (t) => {
  const held = Promise.withResolvers<void>();
  let minted = 0;
  const { issuer, clock } = await rig(() => {
    minted += 1;
    return minted === 2 ? held.promise : Promise.resolve();
  });
  await issuer.start();
  await clock.advance(HALF_LIFE_MS);
  await until(() => minted === 2, { what: 'the renewal' });
  let stopped = false;
  const stop = issuer.stop().then(() => (stopped = true));
  await clock.advance(0);
  t.false(stopped);
  held.resolve();
  await stop;
  t.is(clock.pending, 0);
  await clock.advance(2 * HALF_LIFE_MS);
  t.is(minted, 2);
});
