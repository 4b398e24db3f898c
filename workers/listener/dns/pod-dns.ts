/** The DNS proxy of one pod (docs/spec/dns.md). */
import { isHostName, parseRequest } from '../../../lib/dns/request.ts';
import type { Query } from '../../../lib/dns/request.ts';
import { errorResponse, localResponse } from '../../../lib/dns/response.ts';
import type { DnsProtocol } from '../../../lib/dns/response.ts';
import { resolveQuestion, shuffled } from '../../../lib/dns/resolve.ts';
import type { DnsDecision, DnsRules } from '../../../lib/dns/resolve.ts';
import { typeName } from '../../../lib/dns/type-names.ts';
import { addressesIn, isTruncated, makeQuestion } from '../../../lib/dns/upstream-answer.ts';
import { CLASS_IN, RCODE, TYPE, rcodeOf } from '../../../lib/dns/wire.ts';
import { MeshError, asMeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { lacksIpv6 } from '../../../lib/linux/errno.ts';
import { readSysctl } from '../../../lib/linux/netns.ts';
import type { Workload } from '../../../lib/state/model.ts';
import { decided } from '../lookups.ts';
import type { PodContext } from '../thread-context.ts';
import type { ThreadDns } from './thread-dns.ts';
import { listenerMarkOf } from '../upstream.ts';
import { Forwarder } from './forwarder.ts';
import { MAX_QUERIES_IN_PROGRESS } from './limits.ts';
import { TcpServer } from './tcp-server.ts';
import { UdpServer } from './udp-server.ts';

/** How a query ended, for the log. */
interface Outcome {
  readonly reply: Buffer;
  readonly result: string;
  readonly endpoints: number;
}

/** Answers the names of the mesh from memory and carries all other questions to the name servers. */
export class PodDns {
  readonly #pod: PodContext;
  readonly #dns: ThreadDns;
  readonly #rules: Omit<DnsRules, 'searchDomains'>;
  readonly #forwarder: Forwarder;
  readonly #udp: UdpServer[] = [];
  readonly #tcp: TcpServer[] = [];
  readonly #onIdle: () => void;
  #inProgress = 0;
  #closing = false;

  /** `onIdle` is told when no query is in progress any more after {@link close}. */
  constructor(pod: PodContext, dns: ThreadDns, onIdle: () => void) {
    const { settings } = pod.thread;
    this.#pod = pod;
    this.#dns = dns;
    this.#onIdle = onIdle;
    this.#rules = {
      clusterDomain: settings.clusterDomain.toLowerCase(),
      ipv6: settings.ipv6,
      preferredNamespace: dns.settings.preferredNamespace,
    };
    this.#forwarder = new Forwarder({
      netnsFd: pod.netnsFd,
      mark: listenerMarkOf(pod),
      clock: pod.thread.clock,
      descriptors: pod.thread.descriptors,
      resolvers: () => dns.resolvers.current,
    });
  }

  /** Queries that are not answered yet. */
  get inProgress(): number {
    return this.#inProgress;
  }

  /** Binds all sockets. Rejects with NATIVE_SYSCALL; {@link end} closes those that were bound. */
  async open(): Promise<void> {
    const { address } = this.#dns.settings;
    if (address !== null) {
      await this.#listen(address);
      return;
    }
    await this.#listen('127.0.0.1');
    if (!this.#pod.thread.settings.ipv6 || loopbackWithoutIpv6(this.#pod.netnsFd)) return;
    try {
      await this.#listen('::1');
    } catch (error) {
      if (!lacksIpv6(error)) throw error;
      this.#pod.thread.log.info({ podUid: this.#pod.pod.uid }, 'dns.ipv4-only');
    }
  }

  /** Takes no more connections, and no more queries once none is in progress. Idempotent. */
  close(): void {
    this.#closing = true;
    this.#closeUdp();
    for (const server of this.#tcp) server.close();
  }

  /** Called when the last answer is sent. */
  #idle(): void {
    this.#closeUdp();
    this.#onIdle();
  }

  /** A UDP socket that answers also receives: queries that arrive meanwhile are answered rather than lost. */
  #closeUdp(): void {
    if (!this.#closing || this.#inProgress > 0) return;
    for (const server of this.#udp) server.close();
  }

  /** Ends everything at once. Idempotent. */
  end(): void {
    for (const server of this.#udp) server.close();
    for (const server of this.#tcp) server.end();
    this.#forwarder.close();
  }

  /**
   * The answer to a message, null when it deserves none. Never rejects: what goes wrong is an answer, too.
   */
  async answer(message: Buffer, protocol: DnsProtocol): Promise<Buffer | null> {
    const request = parseRequest(message);
    const { metrics } = this.#dns;
    if (request.kind === 'unanswerable' || request.kind === 'invalid') {
      metrics.malformed += 1;
      return request.kind === 'invalid' ? errorResponse(message, null, request.rcode) : null;
    }
    const query = request.kind === 'query' ? request.query : null;
    if (this.#inProgress >= MAX_QUERIES_IN_PROGRESS) {
      metrics.refused += 1;
      return errorResponse(message, query, RCODE.SERVFAIL);
    }
    this.#inProgress += 1;
    try {
      return await this.#serve(message, query, protocol);
    } catch (error) {
      this.#pod.thread.log.debug({ scope: 'dns', error: errorText(error) }, 'dns.query-failed');
      return errorResponse(message, query, RCODE.SERVFAIL);
    } finally {
      this.#inProgress -= 1;
      if (this.#closing && this.#inProgress === 0) setImmediate(() => this.#idle());
    }
  }

  /**
   * The addresses of a name for the pod, as a query of it would get them. Rejects with ROUTE_NO_UPSTREAM when there are
   * none, with what failed otherwise.
   */
  async resolve(hostname: string, family: 4 | 6): Promise<readonly string[]> {
    const type = family === 4 ? TYPE.A : TYPE.AAAA;
    const name = hostname.toLowerCase().replace(/\.$/, '');
    if (!isHostName(name)) throw new MeshError('ROUTE_NO_UPSTREAM', 'the name cannot be looked up');
    const { workload } = await this.#pod.thread.state.knownLocal(this.#pod.pod.uid);
    const decision = await this.#decide({ name, type, class: CLASS_IN }, workload);
    const addresses =
      decision.kind === 'local'
        ? decision.answer.addresses
        : addressesIn(await this.#ask(makeQuestion(name, type)), type);
    if (addresses.length > 0) return addresses;
    throw new MeshError('ROUTE_NO_UPSTREAM', `${hostname} has no IPv${family} address`);
  }

  async #ask(question: Buffer): Promise<Buffer> {
    const answer = await this.#forwarder.forward(question, 'udp');
    return isTruncated(answer) ? this.#forwarder.forward(question, 'tcp') : answer;
  }

  async #listen(address: string): Promise<void> {
    // The server was stopped while it started.
    if (this.#closing) return;
    const { thread, netnsFd } = this.#pod;
    const at = {
      netnsFd,
      address,
      port: this.#dns.settings.port,
      mark: listenerMarkOf(this.#pod),
      reusePort: true,
    };
    this.#udp.push(new UdpServer(at, (message) => this.answer(message, 'udp'), thread.log));
    const tcp = new TcpServer(
      (message) => this.answer(message, 'tcp'),
      (fd) => this.#admits(fd),
    );
    await tcp.open(at, thread.log);
    this.#tcp.push(tcp);
    if (this.#closing) tcp.close();
  }

  /** Clients of a pod's name server must not take the last descriptors of the process. */
  #admits(fd: number): boolean {
    const { descriptors, metrics } = this.#pod.thread;
    if (descriptors.admits(fd)) return true;
    metrics.earlyDenials['descriptor-limit'] += 1;
    return false;
  }

  async #serve(message: Buffer, query: Query | null, protocol: DnsProtocol): Promise<Buffer> {
    const type = query === null ? 'unknown' : typeName(query.question.type);
    const source = await this.#client();
    const facts = { type, protocol, source };
    this.#dns.metrics.request(facts);
    const outcome =
      source === null
        ? failed(message, query, 'client unknown')
        : await this.#resolve(message, query, { ...facts, source });
    const { log } = this.#pod.thread;
    if (log.isLevelEnabled('debug')) {
      const { pod } = this.#pod;
      log.debug(
        {
          scope: 'dns',
          'src.workload': source?.name ?? pod.name,
          'src.namespace': source?.namespace ?? pod.namespace,
          query: type,
          domain: query?.question.name ?? '',
          result: outcome.result,
          endpoints: outcome.endpoints,
        },
        'dns.answered',
      );
    }
    return outcome.reply;
  }

  /** The pod's workload; null when the mesh does not know it in time. */
  async #client(): Promise<Workload | null> {
    const { state } = this.#pod.thread;
    const { uid } = this.#pod.pod;
    const known = state.local(uid)?.workload;
    if (known !== undefined && known !== null) return known;
    try {
      return (await state.knownLocal(uid)).workload;
    } catch (error) {
      if (error instanceof MeshError && error.code === 'ROUTE_UNKNOWN_WORKLOAD') return null;
      throw error;
    }
  }

  async #resolve(
    message: Buffer,
    query: Query | null,
    facts: { type: string; protocol: DnsProtocol; source: Workload },
  ): Promise<Outcome> {
    if (query === null) return this.#forward(message, query, facts);
    const decision = await this.#decide(query.question, facts.source);
    if (decision.kind === 'forward') return this.#forward(message, query, facts);
    const endpoints = decision.answer.addresses.length;
    return {
      reply: localResponse(message, query, decision.answer, facts.protocol),
      result: endpoints === 0 ? 'no records' : 'success',
      endpoints,
    };
  }

  /** Rejects with STATE_UNAVAILABLE when the mesh cannot tell: its names must not be looked for elsewhere. */
  #decide(
    question: { name: string | null; type: number; class: number },
    source: Workload,
  ): DnsDecision | Promise<DnsDecision> {
    const client = { namespace: source.namespace, network: source.network };
    const { settings, resolvers } = this.#dns;
    const searchDomains = settings.searchDomains === null ? null : resolvers.current.search;
    const context = { client, rules: { ...this.#rules, searchDomains }, shuffle: shuffled };
    return decided(this.#pod, (view) => resolveQuestion(view, question, context));
  }

  async #forward(
    message: Buffer,
    query: Query | null,
    facts: { type: string; protocol: DnsProtocol; source: Workload },
  ): Promise<Outcome> {
    const { clock } = this.#pod.thread;
    const { metrics } = this.#dns;
    const startedMs = clock.monotonic();
    try {
      const reply = await this.#forwarder.forward(message, facts.protocol);
      const rcode = rcodeOf(reply);
      metrics.forwarded(facts, clock.monotonic() - startedMs, rcode !== RCODE.NOERROR);
      const result = rcode === RCODE.NOERROR ? 'forwarded' : `forwarding failed (rcode ${rcode})`;
      return { reply, result, endpoints: 0 };
    } catch (error) {
      metrics.forwarded(facts, clock.monotonic() - startedMs, true);
      const { message: why } = asMeshError(error, 'UPSTREAM_CONNECT');
      return failed(message, query, `forwarding failed (${why})`);
    }
  }
}

function failed(message: Buffer, query: Query | null, result: string): Outcome {
  return { reply: errorResponse(message, query, RCODE.SERVFAIL), result, endpoints: 0 };
}

/** Per pod; where it cannot be read IPv6 is taken to be there (docs/spec/inpod.md §5). */
function loopbackWithoutIpv6(netnsFd: number): boolean {
  try {
    return readSysctl(netnsFd, 'net.ipv6.conf.lo.disable_ipv6') === '1';
  } catch {
    return false;
  }
}
