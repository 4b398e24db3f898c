import { meshSuite } from '../../support/mesh-suite.ts';
import { until } from '../../support/until.ts';

const test = meshSuite({ environment: { SECRET_TTL: '60s' } });

interface Certificate {
  readonly identity: string;
  readonly node: string;
  readonly serial: string;
  readonly notBefore: string;
  readonly notAfter: string;
  readonly state: string;
}

test('certificates of 60 s are renewed under load without a failed request', async (t, mesh) => {
  const find = async (): Promise<Certificate | undefined> =>
    (await mesh.json<Certificate[]>('get', 'certificates')).find(
      (line) => line.node === 'node-2' && line.identity.endsWith('/sa/api'),
    );
  const first = await find();
  t.is(first?.state, 'Available');
  const load = mesh.background(
    'demo/client',
    'bash',
    '-c',
    'trap "echo done $ok $bad; exit" TERM; ok=0; bad=0; while :; do if curl -sS -o /dev/null --max-time 10 http://api/; then ok=$((ok+1)); else bad=$((bad+1)); fi; done',
  );
  const serials = new Set<string>();
  await until(
    async () => {
      const now = await find();
      if (now !== undefined) serials.add(now.serial);
      // The third serial is past the expiry of the first certificate.
      return serials.size >= 3;
    },
    { what: 'two renewals', timeoutMs: 120_000 },
  );
  t.true(Date.now() > Date.parse(first?.notAfter ?? '') - 30_000);
  load.kill('SIGTERM');
  const outcome = await load.exit;
  const [, ok, bad] = /done (\d+) (\d+)/.exec(outcome.stdout) ?? [];
  t.true(Number(ok) > 50, outcome.stdout);
  t.is(Number(bad), 0, outcome.stderr);
});

test('every identity of a node has a certificate on that node, and only there', async (t, mesh) => {
  const certificates = await mesh.json<Certificate[]>('get', 'certificates');
  const names = (node: string): string[] =>
    certificates
      .filter((line) => line.node === node)
      .map((line) => line.identity.split('/').at(-1) ?? '')
      .sort();
  t.deepEqual(names('node-1'), ['client', 'web']);
  t.deepEqual(names('node-2'), ['api', 'db']);
});
