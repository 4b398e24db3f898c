/** The part of Docker's Engine API that finding pods needs. */
import { z } from 'zod';
import { askJson, askLines } from '../local/unix-http.ts';

const summary = z.looseObject({
  Id: z.string(),
  Created: z.number(),
  State: z.string(),
  Status: z.string().default(''),
  Labels: z.record(z.string(), z.string()).nullable().default({}),
  HostConfig: z.looseObject({ NetworkMode: z.string().default('') }).default({ NetworkMode: '' }),
});

const details = z.looseObject({
  Id: z.string(),
  Created: z.string(),
  State: z.looseObject({ Running: z.boolean(), Pid: z.int(), StartedAt: z.string() }),
  NetworkSettings: z.looseObject({
    Networks: z
      .record(
        z.string(),
        z.looseObject({
          IPAddress: z.string().nullish(),
          GlobalIPv6Address: z.string().nullish(),
        }),
      )
      .nullable()
      .default({}),
  }),
});

/** A container in a list. */
export type ContainerSummary = z.infer<typeof summary>;
/** A container looked at closely. */
export type ContainerDetails = z.infer<typeof details>;

/** Containers of one engine, over its unix socket. Every call throws STATE_UNAVAILABLE when there is no answer. */
export class EngineApi {
  readonly #socket: string;

  constructor(socket: string) {
    this.#socket = socket;
  }

  /** Every container that runs. */
  async running(): Promise<readonly ContainerSummary[]> {
    return z
      .array(summary)
      .parse(await askJson({ socket: this.#socket, path: '/containers/json' }));
  }

  /** One container. */
  async inspect(id: string): Promise<ContainerDetails> {
    const path = `/containers/${encodeURIComponent(id)}/json`;
    return details.parse(await askJson({ socket: this.#socket, path }));
  }

  /** Something about some container changed, again and again, until the signal aborts or the stream breaks. */
  async *changes(signal: AbortSignal): AsyncGenerator<void> {
    const filters = encodeURIComponent(JSON.stringify({ type: ['container'] }));
    const question = { socket: this.#socket, path: `/events?filters=${filters}`, signal };
    for await (const event of askLines(question)) {
      // A health check's own commands are events as well, several a second.
      const action = z.looseObject({ Action: z.string().default('') }).parse(event).Action;
      if (!action.startsWith('exec_')) yield;
    }
  }
}
