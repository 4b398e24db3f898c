/** Declares the tests of a file against the run's API server; reports what is missing. */
import test from 'ava';
import { registerSharedWorker } from 'ava/plugin';
import type { ExecutionContext } from 'ava';
import { Cluster } from './cluster.ts';
import type { ApiServer } from './api-server.ts';
import type { ServerAnswer } from './start.ts';

/** Declares a test that gets a {@link Cluster} of its own objects. */
export type KubernetesTest = (
  title: string,
  body: (t: ExecutionContext, cluster: Cluster) => Promise<void>,
) => void;

const worker = registerSharedWorker({
  filename: new URL('api-server.worker.ts', import.meta.url),
  supportedProtocols: ['ava-4'],
});

async function server(): Promise<ServerAnswer> {
  await worker.available;
  for await (const reply of worker.publish('start').replies()) return reply.data as ServerAnswer;
  return { failed: 'the shared worker has ended' };
}

/**
 * Registers the tests of a file. Call it with `await` at the top of the file: AVA gets the tests once the API server is up. Without
 * one they are skipped, and the reason is told.
 */
export async function kubernetesSuite(
  name: string,
  declare: (declared: KubernetesTest) => void,
): Promise<void> {
  const answer = await server();
  if ('missing' in answer) {
    const reason = answer.missing;
    process.stderr.write(`\nSKIPPED kubernetes: ${reason}\n`);
    declare((title) => test.skip(`${name}: ${title}: ${reason}`, (t) => t.pass()));
    return;
  }
  declare((title, body) =>
    test(`${name}: ${title}`, async (t) => {
      t.timeout(180_000);
      if ('failed' in answer) throw new Error(`no API server: ${answer.failed}`);
      const running: ApiServer = answer;
      await body(t, new Cluster(running, t));
    }),
  );
}
