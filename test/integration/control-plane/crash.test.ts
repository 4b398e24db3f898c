import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, readdir, truncate, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import type { ControlPlaneKit } from '../../support/control-plane-kit.ts';
import { until } from '../../support/until.ts';

const FIXTURE = new URL('../../support/control-plane-fixture.ts', import.meta.url).pathname;

async function startProcess(t: ExecutionContext, kit: ControlPlaneKit): Promise<ChildProcess> {
  const child = spawn(process.execPath, [FIXTURE], {
    env: await kit.environment(),
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

/** Two objects that only make sense together. */
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

test.serial(
  'killed while batches are applied, it comes back with whole batches and loses none that was answered',
  async (t) => {
    const kit = await createControlPlaneKit(t);
    const answered = new Set<string>();
    let next = 0;
    for (let round = 0; round < 3; round += 1) {
      const child = await startProcess(t, kit);
      const killed = new AbortController();
      const workers = Array.from({ length: 4 }, async () => {
        while (!killed.signal.aborted) {
          const index = next;
          next += 1;
          try {
            await kit.api.apply(pair(index));
            answered.add(`pair-${index}`);
          } catch {
            // Cut by the kill: it may have been applied or not.
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
    const services = await kit.api.objects('Service');
    const accounts = (await kit.api.objects('ServiceAccount')).map(({ metadata }) => metadata.name);
    t.deepEqual(services.map(({ metadata }) => metadata.name).sort(), accounts.sort());
    for (const name of answered) t.true(accounts.includes(name), `${name} was answered`);
    const addresses = services.map(({ spec }) => spec['clusterIP']);
    t.is(new Set(addresses).size, addresses.length, 'no address twice');
  },
);

test.serial(
  'a write that was cut short is dropped; damage is named and nothing is overwritten',
  async (t) => {
    const kit = await createControlPlaneKit(t);
    const first = await startProcess(t, kit);
    await kit.api.apply(pair(1));
    await kit.api.apply(pair(2));
    await kill(first);
    const stateDir = join(kit.ca.dir, 'control');
    const name = (await readdir(stateDir)).find((file) => file.startsWith('journal.')) ?? '';
    const path = join(stateDir, name);
    await appendFile(path, '0000beef [{"op":"put","obj');

    const second = await startProcess(t, kit);
    t.is((await kit.api.objects('Service')).length, 2);
    await kill(second);

    const content = await readFile(path, 'utf8');
    await truncate(path, 0);
    await writeFile(path, content.replace('pair-1', 'pair-X'));
    const failed = spawn(process.execPath, [FIXTURE], {
      env: await kit.environment(),
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    t.teardown(() => failed.kill('SIGKILL'));
    let output = '';
    failed.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const [code] = (await once(failed, 'close')) as [number];
    t.not(code, 0);
    t.true(output.includes(`${path} is damaged at byte`), output);
    t.is(await readFile(path, 'utf8'), content.replace('pair-1', 'pair-X'));
  },
);
