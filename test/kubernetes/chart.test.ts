/** The Helm chart: its rendering, and the values that it refuses. */
import { readFile } from 'node:fs/promises';
import test from 'ava';
import { errorText } from '../../lib/errors/mesh-error.ts';
import {
  DEFINITIONS_FILE,
  MANIFESTS,
  helmProgram,
  renderChart,
  renderDefinitions,
  renderManifests,
} from './support/helm.ts';

const CENTRAL = { usersSecret: 'users', tlsSecret: 'tls' };

/** Values that the chart refuses, and a part of its reason. */
const REFUSED: readonly (readonly [Readonly<Record<string, unknown>>, RegExp])[] = [
  [{ relicas: 3 }, /at '': additional properties 'relicas' not allowed/],
  [
    { nodeProxy: { drainSecond: 5 } },
    /at '\/nodeProxy': additional properties 'drainSecond' not allowed/,
  ],
  [{ redis: { mode: 'own' } }, /at '\/redis\/mode': value must be one of/],
  [{ redis: { mode: 'external', ...CENTRAL } }, /redis\.url is required with redis\.mode=external/],
  [
    { redis: { mode: 'external', url: 'rediss://a:1' } },
    /redis\.usersSecret is required with redis\.mode=external/,
  ],
  [{ redis: { mode: 'external', url: 'redis://a:1', ...CENTRAL } }, /at '\/redis\/url'/],
  [
    { redis: { mode: 'shared', usersSecret: 'users' } },
    /redis\.tlsSecret is required with redis\.mode=shared/,
  ],
  [{ redis: { url: 'rediss://a:1' } }, /redis\.url is set, but redis\.mode is perNode/],
  [
    { profile: 'compact', redis: { mode: 'shared', ...CENTRAL } },
    /profile compact has a Redis on each node/,
  ],
  [{ profile: 'compact', replaceZtunnel: { enabled: true } }, /compact has a node agent/],
  [{ meshConfig: { trustDomain: 'a.b' } }, /set trustDomain instead/],
  [
    { nodeProxy: { settings: { REDIS_URL: 'unix:///x' } } },
    /nodeProxy\.settings\.REDIS_URL: the chart sets this variable itself/,
  ],
  [
    { nodeAgent: { runtimeSocket: 'unix:///run/crio/crio.sock' } },
    /at '\/nodeAgent\/runtimeSocket'/,
  ],
  [
    { otlp: { settings: { OTEL_EXPORTER_OTLP_HEADERS: 'a=b' } } },
    /may hold a secret: put it into the Secret/,
  ],
];

const helm = await helmProgram();
if ('missing' in helm) {
  process.stderr.write(`\nSKIPPED chart: ${helm.missing}\n`);
  test.skip(`chart: ${helm.missing}`, (t) => t.pass());
} else {
  const program = helm.path;

  test('infra/kubernetes/weft.yaml and the definitions are current', async (t) => {
    t.is(await readFile(MANIFESTS, 'utf8'), await renderManifests(program));
    t.is(await readFile(DEFINITIONS_FILE, 'utf8'), await renderDefinitions());
  });

  test("the agent asks the runtime where its socket is named, by the socket's folder", async (t) => {
    for (const profile of ['standard', 'compact']) {
      const nodeAgent = { runtimeSocket: '/run/crio/crio.sock' };
      const text = await renderChart(program, 'weft', { profile, nodeAgent });
      t.regex(
        text,
        /name: CONTAINER_RUNTIME_ENDPOINT\n +value: unix:\/\/\/host\/run\/crio\/crio\.sock\n/,
      );
      t.true(text.includes('{ name: runtime, mountPath: /host/run/crio, readOnly: true }'));
      t.true(text.includes('hostPath: { path: /run/crio, type: Directory }'));
    }
  });

  test('values that are unknown or contradict each other are refused with the reason', async (t) => {
    for (const [values, reason] of REFUSED) {
      const error = await t.throwsAsync(
        renderChart(program, 'weft', values),
        undefined,
        `${reason}`,
      );
      t.regex(errorText(error), reason);
    }
  });
}
