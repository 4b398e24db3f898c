/** One API server for all test files of a run: AVA starts this worker once and ends it with the run. */
import { startDefined } from './start.ts';
import type { ServerAnswer } from './start.ts';

interface Message {
  reply(data: ServerAnswer): void;
}
interface Protocol {
  ready(): Protocol;
  subscribe(): AsyncIterable<Message>;
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
    server ??= startDefined();
    const answered = message;
    void server.then((answer) => answered.reply(answer));
  }
}
