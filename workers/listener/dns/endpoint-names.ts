import type { Clock } from '../../../lib/clock/clock.ts';
import { withTimeLimit } from '../../../lib/async/time-limit.ts';
import type { AnswerCache } from '../../../lib/dns/answer-cache.ts';
import type { Hosts } from '../../../lib/dns/hosts-file.ts';
import { MAX_ALIASES } from '../../../lib/dns/limits.ts';
import { searchNames } from '../../../lib/dns/resolv-conf.ts';
import { followAliases, isTruncated, makeQuestion } from '../../../lib/dns/upstream-answer.ts';
import { RCODE, TYPE, rcodeOf } from '../../../lib/dns/wire.ts';
import { MeshError, asMeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { ipFamily, tryCanonicalIp } from '../../../lib/net/address.ts';
import { pickResolved } from '../../../lib/state/destination-ip.ts';
import { Forwarder } from './forwarder.ts';
import type { ForwarderOptions } from './forwarder.ts';
import type { Resolvers } from './polled-file.ts';
import {
  MAX_NAME_FAILURES,
  MAX_NAME_LOOKUPS,
  MAX_OPEN_NAMES,
  NAME_FAILURE_MS,
  NAME_LOOKUP_MS,
  NAME_WAIT_MS,
} from '../limits.ts';

/** A name with the family the client would rather have. */
export interface NameToResolve {
  readonly hostname: string;
  readonly preferredFamily: 4 | 6;
}

/** Shared parts of the pods of a thread: they ask the same servers, from the same namespace. */
export interface SharedNames {
  readonly resolvers: Resolvers;
  /** The hosts file, whose names are not asked for. */
  readonly hosts: { readonly current: Hosts };
  readonly cache: AnswerCache;
}

/** How one pod's names are looked up. */
export interface LookupOptions extends SharedNames {
  readonly ipv6: boolean;
  readonly clock: Clock;
  readonly descriptors: ForwarderOptions['descriptors'];
  /** The network namespace that questions leave from; null = the thread's own. */
  readonly netnsFd?: number | null;
}

/** The questions about one name. */
interface Questions {
  readonly asked: Promise<Told>[];
  readonly ended: AbortController;
}

/** The answer of name servers about a name in one family. */
interface Told {
  readonly addresses: readonly string[];
  readonly failure?: MeshError;
  /** A server gave a refusal as its answer: what the name may be short for is asked for all the same. */
  readonly refused?: boolean;
}

/** RFC 6761 §6.3: these names never leave the machine. */
const LOOPBACK = ['127.0.0.1', '::1'];

/**
 * Looks up the endpoints of one pod that are names (docs/spec/dataplane.md §6.4), as the system's resolver would, and without
 * it: that one has a few threads for the whole process, which a few dead names keep busy. Names of the hosts file and
 * `localhost` are known, all others are asked for with the search domains of resolv.conf, over a socket of its own each.
 */
export class NameLookups {
  readonly #options: LookupOptions;
  readonly #forwarder: Forwarder;
  /** Look-ups with a question that is not over, by family and name. */
  readonly #underWay = new Map<string, Promise<readonly string[]>>();
  /** How many of them have not decided yet. */
  #undecided = 0;
  /** The others, the oldest first; each aborts the questions left. */
  readonly #decided = new Set<AbortController>();
  /** The same names where they failed, in the order in which they did. */
  readonly #failures = new Map<string, { readonly error: unknown; readonly untilMs: number }>();

  constructor(options: LookupOptions) {
    this.#options = options;
    this.#forwarder = new Forwarder({
      netnsFd: options.netnsFd ?? null,
      // Nothing redirects the proxy itself, and in the namespace of a pod it asks as the pod would.
      mark: 0,
      clock: options.clock,
      descriptors: options.descriptors,
      resolvers: () => options.resolvers.current,
      cache: options.cache,
    });
  }

  /** Names with a question that is not over, also when connections gave up or have their address. */
  get underWay(): number {
    return this.#underWay.size;
  }

  /**
   * An address of the name, picked at random within the preferred family, or else within the other. Rejects with
   * ROUTE_NO_UPSTREAM, also when there is no answer in time or too many other names are under way.
   */
  async resolve({ hostname, preferredFamily }: NameToResolve): Promise<string> {
    try {
      const limit = { limitMs: NAME_WAIT_MS, what: 'no answer', release: () => undefined };
      const work = this.#lookup(hostname.toLowerCase(), preferredFamily);
      const answers = await withTimeLimit(this.#options.clock, work, limit);
      const picked = pickResolved(answers, preferredFamily, Math.random);
      if (picked !== null) return picked;
    } catch (error) {
      const why = `cannot resolve ${hostname}: ${errorText(error)}`;
      throw new MeshError('ROUTE_NO_UPSTREAM', why, { cause: error });
    }
    throw new MeshError('ROUTE_NO_UPSTREAM', `${hostname} has no address`);
  }

  /** Ends the lookups under way. Idempotent. */
  close(): void {
    this.#forwarder.close();
  }

  async #lookup(name: string, preferred: 4 | 6): Promise<readonly string[]> {
    const known = this.#known(name);
    if (known !== null) return known.filter((ip) => this.#wants(ip));
    const remembered = this.#remembered(name, preferred);
    if (remembered !== null) return remembered;
    const key = `${preferred} ${name}`;
    const asked = this.#underWay.get(key);
    if (asked !== undefined) return asked;
    const failed = this.#failures.get(key);
    if (failed !== undefined && failed.untilMs > this.#options.clock.monotonic())
      throw failed.error;
    if (this.#undecided >= MAX_NAME_LOOKUPS) {
      const why = `${MAX_NAME_LOOKUPS} other names of this pod are being looked up`;
      throw new MeshError('ROUTE_NO_UPSTREAM', why);
    }
    const questions: Questions = { asked: [], ended: new AbortController() };
    const asking = this.#search(name, preferred, questions);
    this.#underWay.set(key, asking);
    void this.#end(key, asking, questions);
    return asking;
  }

  /** Nobody asks a question anew until it is over, though another one found addresses; the look-up counts only until then. */
  async #end(key: string, asking: Promise<unknown>, { asked, ended }: Questions): Promise<void> {
    this.#undecided += 1;
    try {
      await asking;
    } catch (error) {
      this.#noteFailure(key, error);
    } finally {
      this.#undecided -= 1;
    }
    this.#decided.add(ended);
    const [oldest] = this.#decided;
    if (this.#decided.size > MAX_OPEN_NAMES) oldest?.abort();
    await Promise.all(asked);
    this.#decided.delete(ended);
    this.#underWay.delete(key);
  }

  /** Addresses of a name that nobody needs to be asked for. */
  #known(name: string): readonly string[] | null {
    const literal = tryCanonicalIp(name);
    if (literal !== null) return [literal];
    const bare = name.replace(/\.$/, '');
    const listed = this.#options.hosts.current.get(bare);
    if (listed !== undefined) return listed;
    return bare === 'localhost' || bare.endsWith('.localhost') ? LOOPBACK : null;
  }

  /** Searches the cached answers alone, as {@link #search} does; null where a question is needed. */
  #remembered(name: string, preferred: 4 | 6): readonly string[] | null {
    for (const candidate of searchNames(name, this.#options.resolvers.current)) {
      for (const family of this.#families(preferred)) {
        const addresses = this.#cached(candidate, family);
        if (addresses === null || addresses.length > 0) return addresses;
      }
    }
    return [];
  }

  /** Addresses of one family that cached answers tell of; null where an answer is missing. */
  #cached(name: string, family: 4 | 6): readonly string[] | null {
    const type = typeOf(family);
    let owner = name;
    for (let hops = 0; hops <= MAX_ALIASES; hops += 1) {
      const question = makeQuestion(owner, type);
      const { cache } = this.#options;
      const answer = cache.get(question, 'tcp') ?? cache.get(question, 'udp');
      if (answer === null) return null;
      if (rcodeOf(answer) === RCODE.NXDOMAIN) return [];
      const { addresses, alias } = followAliases(answer, owner, type);
      if (alias === null) return addresses;
      owner = alias;
    }
    return null;
  }

  /** In the order in which their addresses count. */
  #families(preferred: 4 | 6): readonly (4 | 6)[] {
    if (!this.#options.ipv6) return [4];
    return [preferred, preferred === 4 ? 6 : 4];
  }

  #wants(ip: string): boolean {
    return this.#options.ipv6 || ipFamily(ip) === 4;
  }

  #noteFailure(key: string, error: unknown): void {
    this.#failures.delete(key);
    const untilMs = this.#options.clock.monotonic() + NAME_FAILURE_MS;
    this.#failures.set(key, { error, untilMs });
    if (this.#failures.size <= MAX_NAME_FAILURES) return;
    const [oldest = key] = this.#failures.keys();
    this.#failures.delete(oldest);
  }

  /** Addresses of one family, of the first name with any; none where no name has one. Adds what it asks to `asked`. */
  async #search(
    name: string,
    preferred: 4 | 6,
    { asked, ended }: Questions,
  ): Promise<readonly string[]> {
    const { clock, resolvers } = this.#options;
    const untilMs = clock.monotonic() + NAME_LOOKUP_MS;
    let failed: MeshError | null = null;
    let goesOn = true;
    for (const candidate of searchNames(name, resolvers.current)) {
      if (clock.monotonic() >= untilMs) {
        throw new MeshError('UPSTREAM_TIMEOUT', `no answer within ${NAME_LOOKUP_MS} ms`);
      }
      // Both are asked at once; the other family is waited for only where the preferred one has nothing.
      const both = this.#families(preferred).map((family) =>
        this.#ask(candidate, family, ended.signal),
      );
      asked.push(...both);
      for (const telling of both) {
        const { addresses, failure, refused } = await telling;
        if (addresses.length > 0) return addresses;
        failed ??= failure ?? null;
        goesOn &&= failure === undefined || refused === true;
      }
      // As the system's resolver: another name would be a wrong answer where this one may exist.
      if (!goesOn) break;
    }
    if (failed !== null) throw failed;
    return [];
  }

  /** Never rejects. */
  async #ask(name: string, family: 4 | 6, givenUp: AbortSignal): Promise<Told> {
    const type = typeOf(family);
    try {
      let owner = name;
      for (let hops = 0; hops <= MAX_ALIASES; hops += 1) {
        const answer = await this.#exchange(makeQuestion(owner, type), givenUp);
        const rcode = rcodeOf(answer);
        if (rcode === RCODE.NXDOMAIN) return { addresses: [] };
        if (rcode !== RCODE.NOERROR) {
          const why = `name servers refuse ${owner} (rcode ${rcode})`;
          return { addresses: [], failure: new MeshError('UPSTREAM_CONNECT', why), refused: true };
        }
        const { addresses, alias } = followAliases(answer, owner, type);
        if (alias === null) return { addresses };
        owner = alias;
      }
      throw new MeshError('UPSTREAM_CONNECT', `${name} has more than ${MAX_ALIASES} aliases`);
    } catch (error) {
      return { addresses: [], failure: asMeshError(error, 'UPSTREAM_CONNECT') };
    }
  }

  /** Over TCP where the answer does not fit a datagram. */
  async #exchange(question: Buffer, givenUp: AbortSignal): Promise<Buffer> {
    const whole = this.#options.cache.get(question, 'tcp');
    if (whole !== null) return whole;
    const answer = await this.#forwarder.forward(question, 'udp', givenUp);
    return isTruncated(answer) ? this.#forwarder.forward(question, 'tcp', givenUp) : answer;
  }
}

function typeOf(family: 4 | 6): typeof TYPE.A | typeof TYPE.AAAA {
  return family === 4 ? TYPE.A : TYPE.AAAA;
}
