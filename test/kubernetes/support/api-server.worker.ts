/** One API server for all test files of a run: AVA starts this worker once and ends it with the run. */
import { readFile } from 'node:fs/promises';
import { parseAllDocuments } from 'yaml';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { removeLeftovers } from '../../support/leftovers.ts';
import { startApiServer } from './api-server.ts';
import type { ApiServer } from './api-server.ts';
import { installDefinitions } from './definitions.ts';
import { kubernetesPrograms } from './programs.ts';

/** The answer to a test file. */
export type ServerAnswer = ApiServer | { readonly missing: string } | { readonly failed: string };

interface Message {
  reply(data: ServerAnswer): void;
}
interface Protocol {
  ready(): Protocol;
  subscribe(): AsyncIterable<Message>;
}

async function start(): Promise<ServerAnswer> {
  try {
    removeLeftovers();
    const programs = await kubernetesPrograms();
    if ('missing' in programs) return programs;
    const server = await startApiServer(programs);
    const texts = await Promise.all(programs.definitions.map((file) => readFile(file, 'utf8')));
    await installDefinitions(
      server,
      texts.flatMap((text) => parseAllDocuments(text).map((document): unknown => document.toJS())),
    );
    return server;
  } catch (error) {
    return { failed: errorText(error) };
  }
}

/** The worker's entry. */
export default async function serve({
  negotiateProtocol,
}: {
  negotiateProtocol(names: readonly string[]): Protocol;
}): Promise<void> {
  const protocol = negotiateProtocol(['ava-4']).ready();
  let server: Promise<ServerAnswer> | null = null;
  for await (const message of protocol.subscribe()) {
    server ??= start();
    const answered = message;
    void server.then((answer) => answered.reply(answer));
  }
}
