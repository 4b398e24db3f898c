import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { bareEnvironment } from '../../support/bare-environment.ts';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import type { ControlPlaneKit } from '../../support/control-plane-kit.ts';
import { until } from '../../support/until.ts';

const FIXTURE = new URL('../../support/control-plane-fixture.ts', import.meta.url).pathname;

async function startProcess(t: ExecutionContext, kit: ControlPlaneKit): Promise<ChildProcess> {
  const child = spawn(process.execPath, [FIXTURE], {
    env: bareEnvironment(await kit.environment()),
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  await until(() => kit.api.objects('Namespace'), { what: 'the manifest API', timeoutMs: 20_000 });
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

/** Two objects that are only valid together. */
const pair = (index: number): string => `
apiVersion: v1
kind: Service
metadata: {name: pair-${index}, namespace: default}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: pair-${index}, namespace: default}
`;

/** More rows than one message to the store's thread holds. */
const large = (index: number): unknown => ({
  documents: Array.from({ length: LARGE }, (_, number) => ({
    source: 'large',
    index: number,
    object: {
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: `large-${index}-${number}` },
    },
  })),
});
const LARGE = 1_200;

test.serial(
  'killed while batches are applied, it comes back with whole batches and loses none that was answered',
  async (t) => {
    const kit = await createControlPlaneKit(t);
    const answered = new Set<string>();
    let next = 0;
    for (let round = 0; round < 3; round += 1) {
      const child = await startProcess(t, kit);
      const killed = new AbortController();
      const workers = Array.from({ length: 4 }, async (_, worker) => {
        while (!killed.signal.aborted) {
          const index = next;
          next += 1;
          try {
            if (worker === 0) await kit.api.send('POST', '/apply', large(index));
            else await kit.api.apply(pair(index));
            answered.add(worker === 0 ? `large-${index}-0` : `pair-${index}`);
          } catch {
            // The kill cut the request; it may have been applied or not.
            return;
          }
        }
      });
      const goal = answered.size + 15;
      await until(() => answered.size >= goal, { what: 'batches to be answered' });
      await kill(child);
      killed.abort();
      await Promise.all(workers);
    }
    await startProcess(t, kit);
    const found = await kit.api.objects('Service');
    const accounts = (await kit.api.objects('ServiceAccount')).map(({ metadata }) => metadata.name);
    const ofLarge = accounts.filter((name) => name.startsWith('large-'));
    for (const name of ofLarge.filter((other) => other.endsWith('-0'))) {
      const batch = ofLarge.filter((other) => other.startsWith(name.slice(0, -1)));
      t.is(batch.length, LARGE, name);
    }
    t.true(ofLarge.length % LARGE === 0);
    t.deepEqual(
      found.map(({ metadata }) => metadata.name).sort(),
      accounts.filter((name) => name.startsWith('pair-')).sort(),
    );
    for (const name of answered) t.true(accounts.includes(name), `${name} was answered`);
    const addresses = found.map(({ spec }) => spec['clusterIP']);
    t.is(new Set(addresses).size, addresses.length, 'no address twice');
  },
);

/** Starts a process that must fail, and returns its output. */
async function failure(t: ExecutionContext, kit: ControlPlaneKit): Promise<string> {
  const failed = spawn(process.execPath, [FIXTURE], {
    env: bareEnvironment(await kit.environment()),
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  t.teardown(() => failed.kill('SIGKILL'));
  let output = '';
  failed.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const [code] = (await once(failed, 'close')) as [number];
  t.not(code, 0);
  return output;
}

const services = async (kit: ControlPlaneKit): Promise<string[]> =>
  (await kit.api.objects('Service')).map(({ metadata }) => metadata.name);

/** Kills a process after three batches of one commit each. Returns its files, and a function that finds `text` in the log. */
async function killedAfterThree(t: ExecutionContext): Promise<{
  kit: ControlPlaneKit;
  stateDir: string;
  database: string;
  log: Buffer;
  place: (text: string) => number;
}> {
  const kit = await createControlPlaneKit(t);
  const child = await startProcess(t, kit);
  for (const index of [1, 2, 3]) await kit.api.apply(pair(index));
  await kill(child);
  const stateDir = join(kit.ca.dir, 'control');
  const database = join(stateDir, 'store.db');
  const log = await readFile(`${database}-wal`);
  return { kit, stateDir, database, log, place: (text) => log.indexOf(text) };
}

test.serial('a commit that was cut short is dropped, and those before it stay', async (t) => {
  const { kit, database, place } = await killedAfterThree(t);
  // Cut inside the last commit, as a power loss may.
  await truncate(`${database}-wal`, place('pair-3'));
  const second = await startProcess(t, kit);
  t.deepEqual(await services(kit), ['pair-1', 'pair-2']);
  await kit.api.apply(pair(4));
  await kill(second);
  await startProcess(t, kit);
  t.deepEqual(await services(kit), ['pair-1', 'pair-2', 'pair-4']);
});

test.serial('damage is named, and nothing is overwritten', async (t) => {
  const { kit, stateDir, database, log, place } = await killedAfterThree(t);
  const kept = join(stateDir, 'kept');
  await mkdir(kept);
  const files = ['store.db', 'store.db-wal'] as const;
  for (const file of files) await copyFile(join(stateDir, file), join(kept, file));
  const restore = async (): Promise<void> => {
    await rm(`${database}-shm`, { force: true });
    for (const file of files) await copyFile(join(kept, file), join(stateDir, file));
  };
  const refusedWith = async (expected: string, path: string, content: Buffer): Promise<void> => {
    await restore();
    await writeFile(path, content);
    const output = await failure(t, kit);
    t.true(output.includes(expected), output);
    t.deepEqual(await readFile(path), content, 'the file is left as it is');
  };

  // Flip a byte in a commit with others after it; SQLite alone would drop all of them.
  const flipped = Buffer.from(log);
  flipped.write('X', place('pair-1'));
  await refusedWith(`${database}-wal is damaged at byte`, `${database}-wal`, flipped);
  const header = Buffer.from(log);
  header.writeUInt8(header.readUInt8(17) ^ 1, 17);
  await refusedWith(`${database}-wal is damaged at byte 0`, `${database}-wal`, header);
  await refusedWith(`${database} is empty or missing`, database, Buffer.alloc(0));

  // A clean stop leaves one file.
  await restore();
  const whole = await startProcess(t, kit);
  t.deepEqual(await services(kit), ['pair-1', 'pair-2', 'pair-3']);
  const ended = once(whole, 'exit');
  whole.kill('SIGTERM');
  await ended;
  await t.throwsAsync(stat(`${database}-wal`), { code: 'ENOENT' });
  const content = await readFile(database);
  const text = Buffer.from(content);
  text.write('X', content.lastIndexOf('"name":"pair-2"') + 8);
  await writeFile(database, text);
  const output = await failure(t, kit);
  t.regex(output, /store\.db is damaged: \w+\/default\/pair-2 is not as written/);
  const cut = content.subarray(0, content.length - 5_000);
  for (const damaged of [cut, Buffer.alloc(0), Buffer.from('no database'.repeat(1_000))]) {
    await writeFile(database, damaged);
    const said = await failure(t, kit);
    t.true(said.includes(`${database} is damaged: `), said);
    t.deepEqual(await readFile(database), damaged);
  }
  await writeFile(database, content);
  await startProcess(t, kit);
  t.deepEqual(await services(kit), ['pair-1', 'pair-2', 'pair-3']);
});

test.serial('a directory of an earlier format is refused', async (t) => {
  const kit = await createControlPlaneKit(t);
  const path = join(kit.ca.dir, 'control', 'journal.0');
  await mkdir(join(kit.ca.dir, 'control'), { recursive: true });
  await writeFile(path, '');
  t.true((await failure(t, kit)).includes(`${path} is of a format that is no longer read`));
});

test.serial(
  'a second process on the same directory is refused, and takes over once the first is dead',
  async (t) => {
    const kit = await createControlPlaneKit(t);
    const first = await startProcess(t, kit);
    await kit.api.apply(pair(1));
    const stateDir = join(kit.ca.dir, 'control');
    const output = await failure(t, kit);
    t.true(output.includes(`${stateDir} is in use by process ${first.pid} on `), output);
    // The first process still has its socket and its store.
    await kit.api.apply(pair(2));
    await kill(first);
    await startProcess(t, kit);
    t.deepEqual(await services(kit), ['pair-1', 'pair-2']);
  },
);
