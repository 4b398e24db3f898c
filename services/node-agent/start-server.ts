/** Answers the programs that hold the start of a pod, the CNI plugin and weft-runtime: once the pod is enrolled, or known to be outside the mesh. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { withTimeLimit } from '../../lib/async/time-limit.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { HttpRefusal, readJson, sendText } from '../../lib/http/answers.ts';
import { HttpServer } from '../../lib/http/http-server.ts';
import { RouteTable } from '../../lib/http/routes.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { EVENT_READ_MS, MAX_EVENT_BYTES, START_ANSWER_MS } from './limits.ts';
import type { NodeEnrolments } from './node-enrolments.ts';

/** An answer. Status 200 lets the pod start. */
export interface StartAnswer {
  readonly status: number;
  readonly text: string;
}

/** A pod whose start waits. */
export interface HeldStart {
  /** Names the pod, for people. */
  readonly pod: string;
  judge(): Promise<StartAnswer>;
}

/** Settings and ports of a {@link StartServer}. */
export interface StartServerOptions {
  /** Path of the unix socket. Only root reaches its folder. */
  readonly socket: string;
  readonly route: string;
  /** Names the server in log lines. */
  readonly name: string;
  /** Reads the body of a request. Throws CONFIG_INVALID that names every wrong field. */
  readonly read: (body: unknown) => HeldStart;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onAnswer: (status: number) => void;
}

/** Serves `POST` on one route of a unix socket. */
export class StartServer {
  readonly #options: StartServerOptions;
  readonly #server: HttpServer;

  constructor(options: StartServerOptions) {
    this.#options = options;
    const { name, log, route } = options;
    const routes = new RouteTable();
    routes.route('POST', route, (request, response) => this.#serve(request, response));
    this.#server = new HttpServer(routes.handle, { name, log, readsBodies: true });
  }

  /** Throws the file system's errors. */
  async listen(): Promise<void> {
    await this.#server.listen({ kind: 'unix', path: this.#options.socket });
  }

  /** Cuts what waits: the programs judge those pods without the agent. */
  close(): Promise<void> {
    return this.#server.close();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { clock, log, name, onAnswer } = this.#options;
    const slow = clock.after(EVENT_READ_MS, () => request.destroy());
    let body: unknown;
    try {
      body = await readJson(request, MAX_EVENT_BYTES);
    } catch (error) {
      // After a refusal the rest of the body is not read.
      response.setHeader('connection', 'close');
      onAnswer(error instanceof HttpRefusal ? error.status : 400);
      throw error;
    } finally {
      slow.cancel();
    }
    const startedMs = clock.monotonic();
    const { status, text } = await this.#answer(body);
    onAnswer(status);
    const facts = { status, text, ms: Math.round(clock.monotonic() - startedMs) };
    log[status === 200 ? 'info' : 'warn'](facts, `${name}.pod-answered`);
    sendText(response, status, `${text}\n`);
  }

  async #answer(body: unknown): Promise<StartAnswer> {
    let held: HeldStart;
    try {
      held = this.#options.read(body);
    } catch (error) {
      return { status: 400, text: errorText(error) };
    }
    try {
      return await withTimeLimit(this.#options.clock, held.judge(), {
        limitMs: START_ANSWER_MS,
        what: `${held.pod} is not enrolled`,
        release: () => undefined,
      });
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      return { status: 500, text: error.message };
    }
  }
}

/** Brings the pod to its state and says whether it is enrolled. */
export async function enrolled(
  pods: Pick<NodeEnrolments, 'outcome'>,
  uid: string,
  { pod, reason }: { readonly pod: string; readonly reason: string },
): Promise<StartAnswer> {
  const outcome = await pods.outcome(uid);
  return outcome.state === 'enabled' && outcome.reason === null
    ? { status: 200, text: `${pod} is enrolled: ${reason}` }
    : { status: 500, text: `${pod} is not enrolled: ${outcome.reason ?? outcome.state}` };
}
