/**
 * How much memory the control plane's objects and resources take, and how long a change holds its event loop:
 * `node test/bench/mapping.ts --pods 10000,100000`. Every size runs in a process of its own, with the options of the launcher.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { TimeSlice } from '../../lib/async/time-slice.ts';
import { SLICE_MS } from '../../services/control-plane/limits.ts';
import { MeshMap } from '../../services/control-plane/mapping/mesh-map.ts';
import { namespaceOf } from '../../services/control-plane/manifests/kinds.ts';
import { nameKey } from '../../services/control-plane/mapping/objects.ts';
import type { Kind, KubeObject } from '../../services/control-plane/manifests/kinds.ts';
import { reduce } from '../../services/control-plane/manifests/reduce.ts';
import { ObjectTables } from '../../services/control-plane/sources/object-tables.ts';
import { BigMesh } from './lib/big-mesh.ts';
import { Turns } from './lib/turns.ts';
import type { LongestTurns } from './lib/turns.ts';

/** Objects of one page of a list. */
const PAGE = 500;
const CHURN_ROUNDS = 10;
const HEAD =
  'change                             resources  computed  seconds  longest turn, ms  processor time  work alone  longest gc    MB  live';

interface Row extends LongestTurns {
  readonly change: string;
  readonly resources: number;
  readonly computed: number;
  readonly seconds: number;
  /** Resident memory, and what of it is in use after a collection. */
  readonly memoryMb: number;
  readonly liveMb: number;
}

/** Holds the objects as the control plane does, and measures what a change costs. */
class Measured {
  readonly #tables = new ObjectTables();
  readonly #map = new MeshMap(
    {
      clusterId: 'Kubernetes',
      trustDomain: 'cluster.local',
      domain: 'cluster.local',
      policies: { rootNamespace: 'istio-system', dryRun: false },
    },
    (key, error) => {
      throw new Error(`${key} cannot be mapped`, { cause: error });
    },
  );
  readonly rows: Row[] = [];
  readonly #slice = new TimeSlice(SLICE_MS);
  readonly #turns = new Turns();
  #begun = false;

  /** Applies a page of objects. */
  async page(kind: Kind, json: string): Promise<void> {
    this.#begin();
    for (const item of JSON.parse(json) as unknown[]) {
      this.#apply(reduce(kind, item));
      await this.#slice.breathe();
    }
  }

  /** Refreshes the resources and notes a row. */
  async finish(change: string): Promise<void> {
    const before = this.#map.computed;
    const begun = performance.now();
    const changed = await this.#map.refresh();
    const seconds = (performance.now() - begun) / 1_000;
    const turns = await this.#turns.longest();
    this.#begun = false;
    globalThis.gc?.();
    const { rss, heapUsed, external } = process.memoryUsage();
    this.rows.push({
      change,
      resources: [...changed.values()].reduce((sum, names) => sum + names.size, 0),
      computed: this.#map.computed - before,
      seconds,
      ...turns,
      memoryMb: rss / 1_048_576,
      liveMb: (heapUsed + external) / 1_048_576,
    });
  }

  #begin(): void {
    if (!this.#begun) this.#turns.begin();
    this.#begun = true;
  }

  #apply(object: KubeObject | null): void {
    if (object === null) throw new Error('an object has a name');
    const key = nameKey(object.kind, namespaceOf(object), object.metadata.name);
    const before = this.#tables.get(object.kind, key) ?? null;
    this.#tables.set(object.kind, key, object);
    this.#map.note([{ before, after: object }]);
  }
}

/** The measured process: reads pages as `Kind JSON`, and `= name` at the end of a change. */
async function measure(): Promise<void> {
  const measured = new Measured();
  for await (const line of createInterface({ input: process.stdin })) {
    const space = line.indexOf(' ');
    const [word, rest] = [line.slice(0, space), line.slice(space + 1)];
    if (word === '=') await measured.finish(rest);
    else await measured.page(word as Kind, rest);
  }
  process.stdout.write(`${JSON.stringify(measured.rows)}\n`);
}

/** The changes, each with its pages. The measured process makes no objects of its own, so that they do not count. */
function* changes(pods: number): Iterable<string> {
  const mesh = new BigMesh(pods);
  yield '= nothing';
  for (const [kind, json] of mesh.pages(PAGE)) yield `${kind} ${json}`;
  yield '= first sync';
  yield `Pod ${mesh.pod(7, { ready: false })}`;
  yield '= one pod';
  yield `Service ${mesh.wideService()}`;
  yield '= a Service of a fifth of the pods';
  yield `PeerAuthentication ${mesh.rootStrict('STRICT')}`;
  yield '= root PeerAuthentication';
  yield `AuthorizationPolicy ${mesh.policy()}`;
  yield '= a policy of a fifth of the pods';
  for (let round = 0; round < CHURN_ROUNDS; round += 1) {
    for (const [kind, json] of mesh.churn(round, PAGE)) yield `${kind} ${json}`;
    yield `= a tenth of the pods anew, ${round + 1}`;
  }
}

async function measureApart(pods: number): Promise<readonly Row[]> {
  const child = spawn(
    process.execPath,
    [...values.flags.split(' '), '--expose-gc', import.meta.filename, '--child'],
    {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: {
        NODE_COMPILE_CACHE: join(import.meta.dirname, '../../.cache/compile'),
      },
    },
  );
  const output = text(child.stdout);
  for (const line of changes(pods)) {
    if (!child.stdin.write(`${line}\n`)) await once(child.stdin, 'drain');
  }
  child.stdin.end();
  return JSON.parse(await output) as Row[];
}

const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '10000,100000' },
    // Those of the launcher.
    flags: {
      type: 'string',
      default: '--max-semi-space-size=1 --invocation-count-for-turbofan=30000',
    },
    child: { type: 'boolean' },
  },
});
if (values.child === true) {
  await measure();
} else {
  for (const pods of values.pods.split(',')) {
    process.stdout.write(`\n${pods} pods\n`);
    process.stdout.write(`${HEAD}\n`);
    for (const row of await measureApart(Number(pods))) {
      process.stdout.write(
        `${[
          row.change.padEnd(34),
          String(row.resources).padStart(9),
          String(row.computed).padStart(9),
          row.seconds.toFixed(2).padStart(8),
          row.longestTurnMs.toFixed(1).padStart(17),
          row.longestCpuMs.toFixed(1).padStart(15),
          row.longestWorkMs.toFixed(1).padStart(11),
          row.longestGcMs.toFixed(1).padStart(11),
          row.memoryMb.toFixed(0).padStart(5),
          row.liveMb.toFixed(0).padStart(5),
        ].join(' ')}\n`,
      );
    }
  }
}
