import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { AnswerCache } from '../../../lib/dns/answer-cache.ts';
import type { ResolverConfig } from '../../../lib/dns/resolv-conf.ts';
import type { DnsProtocol } from '../../../lib/dns/response.ts';
import { relayed } from '../../../lib/dns/upstream-answer.ts';
import { RCODE, rcodeOf } from '../../../lib/dns/wire.ts';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import { isExhausted } from '../../../lib/linux/errno.ts';
import { exchangeTcp, exchangeUdp } from './exchange.ts';
import type { ExchangePath } from './exchange.ts';
import {
  FORWARD_DEADLINE_MS,
  MAX_FORWARDS,
  MAX_WAITING_FORWARDS,
  SERVER_AVOIDED_MS,
} from './limits.ts';

/** Dependencies of {@link Forwarder}. */
export interface ForwarderOptions {
  /** Null = the thread's own namespace. */
  readonly netnsFd: number | null;
  readonly mark: number;
  readonly clock: Clock;
  readonly descriptors: ExchangePath['descriptors'];
  /** The resolver configuration as it is now. */
  readonly resolvers: () => ResolverConfig;
  /** How one server is asked; over the network unless a test says otherwise. */
  readonly exchange?: typeof exchangeUdp;
  /** The cache of answers: its own, unless others that ask the same servers share one. */
  readonly cache?: AnswerCache;
}

/** A question that waits for its turn. */
interface Waiting {
  readonly deadlineMs: number;
  readonly start: () => void;
  readonly giveUp: (error: MeshError) => void;
}

/** Answers that another server may know better: SERVFAIL, NOTIMP, REFUSED. */
const TRY_NEXT: ReadonlySet<number> = new Set([RCODE.SERVFAIL, 4, 5]);

/** Carries a pod's questions to the name servers, as they are, and keeps their answers while these live. */
export class Forwarder {
  readonly #options: ForwarderOptions;
  readonly #cache: AnswerCache;
  readonly #end = new AbortController();
  /** In the order they came, which is that of their deadlines. */
  readonly #waiting: Waiting[] = [];
  #timer: Timer | null = null;
  /** When servers failed last. */
  readonly #failedMs = new Map<string, number>();
  #underWay = 0;
  #turn = 0;

  constructor(options: ForwarderOptions) {
    this.#options = options;
    this.#cache = options.cache ?? new AnswerCache(options.clock);
  }

  /**
   * The answer under the question's own id. Rejects with UPSTREAM_TIMEOUT or UPSTREAM_CONNECT when no server gives one
   * in time, or when too many questions are under way, and with NATIVE_SYSCALL when none can be asked for want of a descriptor.
   * `givenUp` ends a question that nobody waits for any more.
   */
  async forward(question: Buffer, protocol: DnsProtocol, givenUp?: AbortSignal): Promise<Buffer> {
    const id = question.readUInt16BE(0);
    const known = this.#cache.get(question, protocol);
    if (known !== null) return relayed(known, id);
    const deadlineMs = this.#options.clock.monotonic() + FORWARD_DEADLINE_MS;
    const end = this.#end.signal;
    const signal = givenUp === undefined ? end : AbortSignal.any([end, givenUp]);
    await this.#enter(deadlineMs);
    try {
      const answer = await this.#ask(question, protocol, deadlineMs, signal);
      this.#cache.put(question, protocol, answer);
      return relayed(answer, id);
    } finally {
      this.#leave();
    }
  }

  /** Ends the queries under way and refuses new ones. Idempotent. */
  close(): void {
    this.#end.abort(new MeshError('UPSTREAM_CONNECT', 'the pod is stopping'));
    this.#timer?.cancel();
    for (const { start } of this.#waiting.splice(0)) start();
  }

  async #enter(deadlineMs: number): Promise<void> {
    if (this.#underWay < MAX_FORWARDS) {
      this.#underWay += 1;
      return;
    }
    if (this.#waiting.length >= MAX_WAITING_FORWARDS) {
      throw new MeshError('UPSTREAM_CONNECT', 'too many questions of this pod are under way');
    }
    // A question that ends hands its place to the next.
    await new Promise<void>((start, giveUp) => {
      this.#waiting.push({ deadlineMs, start, giveUp });
      this.#watchFirst();
    });
  }

  /** Gives up those whose time has come while servers keep everybody waiting. */
  #watchFirst(): void {
    const [first] = this.#waiting;
    if (this.#timer !== null || first === undefined) return;
    const { clock } = this.#options;
    this.#timer = clock.after(Math.max(0, first.deadlineMs - clock.monotonic()), () => {
      this.#timer = null;
      const now = clock.monotonic();
      const late = this.#waiting.findIndex(({ deadlineMs }) => deadlineMs > now);
      for (const one of this.#waiting.splice(0, late === -1 ? this.#waiting.length : late)) {
        one.giveUp(noTurn());
      }
      this.#watchFirst();
    });
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#underWay -= 1;
    else next.start();
  }

  async #ask(
    question: Buffer,
    protocol: DnsProtocol,
    deadlineMs: number,
    signal: AbortSignal,
  ): Promise<Buffer> {
    const { servers, attempts, timeoutMs, rotate } = this.#options.resolvers();
    let refusal: Buffer | null = null;
    let failure: MeshError | null = null;
    for (let round = 0; round < attempts; round += 1) {
      for (const server of this.#ordered(servers, rotate)) {
        const leftMs = Math.min(timeoutMs, deadlineMs - this.#options.clock.monotonic());
        if (leftMs <= 0 || signal.aborted) break;
        try {
          const answer = await this.#askOne(server, question, protocol, leftMs, signal);
          if (!TRY_NEXT.has(rcodeOf(answer))) return answer;
          refusal = answer;
        } catch (error) {
          // Not the server's fault, and another one would need a socket as well.
          const exhausted = isExhausted(error);
          if (exhausted && refusal === null) throw error;
          if (exhausted) break;
          failure = asMeshError(error, 'UPSTREAM_CONNECT');
          if (!signal.aborted) this.#failedMs.set(server, this.#options.clock.monotonic());
        }
      }
      if (refusal !== null) return refusal;
    }
    throw failure ?? this.#nobody(servers);
  }

  async #askOne(
    server: string,
    question: Buffer,
    protocol: DnsProtocol,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<Buffer> {
    const { netnsFd, mark, descriptors } = this.#options;
    const path = { netnsFd, mark, server, timeoutMs, descriptors, signal };
    const exchange = this.#options.exchange ?? (protocol === 'udp' ? exchangeUdp : exchangeTcp);
    const answer = await exchange(path, question);
    this.#failedMs.delete(server);
    return answer;
  }

  /** In the configured order, those that failed lately last. */
  #ordered(servers: readonly string[], rotate: boolean): string[] {
    if (rotate) this.#turn = (this.#turn + 1) % Math.max(1, servers.length);
    const since = this.#options.clock.monotonic() - SERVER_AVOIDED_MS;
    const inTurn = [...servers.slice(this.#turn), ...servers.slice(0, this.#turn)];
    const avoided = (server: string): boolean => (this.#failedMs.get(server) ?? -Infinity) > since;
    return [
      ...inTurn.filter((server) => !avoided(server)),
      ...inTurn.filter((server) => avoided(server)),
    ];
  }

  #nobody(servers: readonly string[]): MeshError {
    if (this.#end.signal.aborted) return new MeshError('UPSTREAM_CONNECT', 'the pod is stopping');
    return servers.length === 0
      ? new MeshError('UPSTREAM_CONNECT', 'no name server is configured')
      : noTurn();
  }
}

function noTurn(): MeshError {
  return new MeshError('UPSTREAM_TIMEOUT', `no turn within ${FORWARD_DEADLINE_MS} ms`);
}
