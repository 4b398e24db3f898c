/** Tests a CA whose clock is ten minutes off, as a process of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';
import { requestFor } from '../../../lib/identity/csr.ts';
import { bareEnvironment } from '../../support/bare-environment.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import type { CaKit } from '../../support/ca-kit.ts';
import { until } from '../../support/until.ts';

const WEFT = fileURLToPath(new URL('../../../services/cli/main.ts', import.meta.url));
/** The library of Debian's package faketime. */
const [FAKETIME] = globSync('/usr/lib/*/faketime/libfaketimeMT.so.1');
const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
/** In milliseconds, for bounds. */
const TEN_MINUTES_MS = 600_000;

const clockTest = FAKETIME === undefined ? test.skip : test;
if (FAKETIME === undefined) {
  process.stderr.write('\nSKIPPED clocks: Debian package faketime is not installed\n');
}

/** Starts a CA whose clock is off, and asks it as a node whose clock is right. Returns the answer and the CA's log. */
async function askCa(
  t: ExecutionContext,
  kit: CaKit,
  offset: string,
): Promise<{ readonly error: MeshError | null; readonly log: readonly Record<string, unknown>[] }> {
  const child = spawn(process.execPath, [WEFT, 'run', 'ca'], {
    env: bareEnvironment({
      ...kit.environment,
      LD_PRELOAD: FAKETIME ?? '',
      FAKETIME: offset,
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    }),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`the CA ended: ${output}`);
      return output.includes('ca.listening') && output.includes('pods.synced');
    },
    { what: 'the CA to listen' },
  );
  const client = await kit.client();
  const { csrPem } = await requestFor(WEB);
  const request = { csr: csrPem, validitySeconds: 3_600, impersonated: WEB };
  const error = await client.createCertificate(request, new AbortController().signal).then(
    () => null,
    (failure: unknown) => asMeshError(failure, 'IDENTITY_UNAVAILABLE'),
  );
  child.kill('SIGTERM');
  await once(child, 'close');
  const log = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { error, log };
}

function timesOf(log: readonly Record<string, unknown>[]): number {
  return Date.parse(String(log[0]?.['time'])) - Date.now();
}

clockTest(
  'a CA ten minutes behind refuses tokens of the future, and names the difference',
  async (t) => {
    const kit = await createCaKit(t);
    const { error, log } = await askCa(t, kit, '-10m');
    t.true(timesOf(log) < -TEN_MINUTES_MS / 2, 'the clock of the process is off');
    t.is(error?.code, 'IDENTITY_REFUSED');
    const told =
      /not valid before \S+, (\d+) s from now .*the clocks here and at its issuer differ/;
    const [, seconds] = told.exec(error?.message ?? '') ?? [];
    t.true(Number(seconds) > 400 && Number(seconds) <= 600, error?.message);
    const line = log.find(({ message }) => message === 'certificate.request-refused');
    t.is(line?.['reason'], 'bad_token');
    t.regex(String(line?.['detail']), told);
  },
);

clockTest(
  'a CA ten minutes ahead is not believed by nodes, which name the difference',
  async (t) => {
    const kit = await createCaKit(t);
    const { error, log } = await askCa(t, kit, '+10m');
    t.true(timesOf(log) > TEN_MINUTES_MS / 2, 'the clock of the process is off');
    t.is(error?.code, 'IDENTITY_UNAVAILABLE');
    t.regex(
      error?.message ?? '',
      /certificate of the server is not valid before \S+: the clocks here and at the server differ by at least [78] min/,
    );
    t.false(log.some(({ message }) => message === 'certificate.issued'));
  },
);
