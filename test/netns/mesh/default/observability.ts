/** Scrapes a mesh with Debian's Prometheus and the project's own configuration, and runs the queries of alerts and dashboards. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { parse } from 'yaml';
import { findProgram } from '../../../support/programs.ts';
import { test as onMesh } from './mesh.ts';
import { until } from '../../../support/until.ts';

const run = promisify(execFile);
const INFRA = new URL('../../../../infra/', import.meta.url).pathname;
const ADDRESS = '127.0.0.1:9090';
/** Families that have samples only after a failure, or with configured revocation lists. */
const SILENT_WHEN_WELL =
  /^(?:nodeagent_drift_repaired_total|weft_bus_parked_total|istio_tcp_connections_failed_total|weft_crl_\w+)$/;

const prometheus = findProgram('prometheus');
const promtool = findProgram('promtool');
if (prometheus === null || promtool === null) {
  process.stderr.write('\nSKIPPED, NOT RUN: Prometheus is not installed\n');
}
const toolTest = promtool === null ? test.serial.skip : test.serial;
const withMesh = prometheus === null ? null : onMesh;
const meshTest = withMesh ?? ((title: string) => test.serial.skip(title, (t) => t.pass()));

interface Dashboard {
  readonly panels: readonly { title: string; targets: readonly { expr: string }[] }[];
}
interface Rules {
  readonly groups: readonly {
    rules: readonly { alert?: string; record?: string; expr: string }[];
  }[];
}
interface Answer<T> {
  readonly status: string;
  readonly error?: string;
  readonly data: T;
}

async function dashboards(): Promise<readonly { what: string; query: string }[]> {
  const folder = join(INFRA, 'grafana/dashboards');
  const files = (await readdir(folder)).filter((name) => name.endsWith('.json'));
  const all = await Promise.all(
    files.map(async (name) => JSON.parse(await readFile(join(folder, name), 'utf8')) as Dashboard),
  );
  return all.flatMap(({ panels }) =>
    panels.flatMap(({ title, targets }) =>
      targets.map(({ expr }) => ({
        what: `panel ${title}`,
        query: expr.replaceAll('$__rate_interval', '1m').replaceAll('$node', '.*'),
      })),
    ),
  );
}

async function alerts(): Promise<readonly { what: string; query: string }[]> {
  const text = await readFile(join(INFRA, 'prometheus/weft.rules.yml'), 'utf8');
  return (parse(text) as Rules).groups.flatMap(({ rules }) =>
    rules.map(({ alert, record, expr }) => ({ what: `rule ${alert ?? record}`, query: expr })),
  );
}

/** Lists the metrics that a query names. */
function metricsOf(query: string): string[] {
  const bare = query.replaceAll(/"[^"]*"/g, '').replaceAll(/\b(?:by|without) \([^)]*\)/g, '');
  return (
    bare.match(/\b(?:up|(?:istio|weft|nodeagent|pilot|citadel|process|nodejs|workload)_\w+)\b/g) ??
    []
  );
}

toolTest('promtool finds no fault in the rules, and they fire when they should', async (t) => {
  await run(promtool ?? '', ['check', 'rules', join(INFRA, 'prometheus/weft.rules.yml')]);
  await run(promtool ?? '', ['test', 'rules', join(INFRA, 'prometheus/weft.test.yml')]);
  t.pass();
});

meshTest(
  'every target is up, and every query of panels and alerts is answered',
  async (t, mesh) => {
    const folder = await mkdtemp(join(tmpdir(), 'weft-prometheus-'));
    t.teardown(() => rm(folder, { recursive: true }));
    await cp(join(INFRA, 'prometheus'), folder, { recursive: true });
    const config = join(folder, 'prometheus.yml');
    const text = await readFile(config, 'utf8');
    await writeFile(config, text.replaceAll('_interval: 15s', '_interval: 1s'));
    const inControl = [`--net=/run/netns/${mesh.name}-ctl`];
    const server = spawn(
      'nsenter',
      [
        ...inControl,
        prometheus ?? '',
        `--config.file=${config}`,
        `--storage.tsdb.path=${join(folder, 'data')}`,
        `--web.listen-address=${ADDRESS}`,
      ],
      { stdio: 'ignore' },
    );
    t.teardown(async () => {
      const ended = once(server, 'exit');
      server.kill('SIGKILL');
      await ended;
    });
    const ask = async <T>(path: string): Promise<T> => {
      const curl = [...inControl, 'curl', '-sS', '-m', '60', `http://${ADDRESS}/api/v1/${path}`];
      const { stdout } = await run('nsenter', curl, { maxBuffer: 64 * 1024 * 1024 });
      const answer = JSON.parse(stdout) as Answer<T>;
      if (answer.status !== 'success') throw new Error(`${path}: ${answer.error ?? ''}`);
      return answer.data;
    };
    await mesh.exec('demo/client', 'curl', '-sS', '-m', '60', 'http://api/');
    await until(
      async () => {
        const { activeTargets } = await ask<{ activeTargets: { health: string }[] }>('targets');
        return activeTargets.length === 10 && activeTargets.every(({ health }) => health === 'up');
      },
      { what: 'every target to be up', timeoutMs: 60_000 },
    );
    const queries = [...(await dashboards()), ...(await alerts())];
    for (const { what, query } of queries) {
      await t.notThrowsAsync(ask(`query?query=${encodeURIComponent(query)}`), what);
    }
    const known = new Set(await ask<string[]>('label/__name__/values'));
    const described = new Set(Object.keys(await ask<Record<string, unknown>>('metadata')));
    const missing = queries.flatMap(({ what, query }) =>
      metricsOf(query)
        .filter((name) => !known.has(name) && !described.has(name) && !SILENT_WHEN_WELL.test(name))
        .map((name) => `${what}: ${name}`),
    );
    t.deepEqual(missing, []);
  },
);
