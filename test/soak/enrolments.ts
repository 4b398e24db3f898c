/**
 * Soaks the node agent alone: enrols many pods of one node at once, then has them leave and join, or be replaced by pods in new
 * namespaces, round after round. The agent must hold no more descriptors, namespaces and memory afterwards: its garbage is
 * collected after each third, which tells what it holds from what it has not returned yet.
 */
import type { AgentUsage } from './agent-process.ts';
import { EnrolledNode } from './enrolled-node.ts';
import { grownHeld, grownMemory, heldDescriptors, mib } from './resources.ts';
import type { HeldMemory } from './resources.ts';

/** Pods that change in one round. */
const ROUND_PODS = 50;
/** Enrolments between two lines that tell how far the soak is. */
const SAID_EACH = 1_000;

/** How long a soak of enrolments is. */
export interface EnrolmentSoak {
  readonly pods: number;
  /** How many enrolments follow the first of each pod. */
  readonly enrolments: number;
  /** Seconds after which no further round begins. */
  readonly seconds: number;
}

/** A third of the enrolments. */
interface Third {
  /** Seconds from the start of the first third to the end of this one. */
  readonly endSeconds: number;
  readonly enrolments: number;
  readonly cpuSeconds: number;
  /** The process with the least and with the most memory after a round. */
  readonly least: AgentUsage;
  readonly most: AgentUsage;
  /** The end, with garbage. */
  readonly end: AgentUsage;
  readonly held: HeldMemory;
}

/** Rounds of enrolments, up to the limits. */
class Rounds {
  readonly #node: EnrolledNode;
  readonly #limits: EnrolmentSoak;
  readonly #say: (text: string) => void;
  readonly #startMs = performance.now();
  #rounds = 0;
  enrolments = 0;

  constructor(node: EnrolledNode, limits: EnrolmentSoak, say: (text: string) => void) {
    this.#node = node;
    this.#limits = limits;
    this.#say = say;
  }

  get seconds(): number {
    return (performance.now() - this.#startMs) / 1_000;
  }

  /** Runs rounds until `part` of the enrolments or of the time is reached. */
  async third(part: number): Promise<Third> {
    const { agent } = this.#node;
    const enrolmentsBefore = this.enrolments;
    const { cpuSeconds } = await agent.usage();
    const seen: AgentUsage[] = [];
    while (this.#reached < part) {
      await this.#round();
      seen.push(await agent.usage());
    }
    const end = await agent.usage();
    const byMemory = [...seen, end].toSorted((one, other) => one.ownBytes - other.ownBytes);
    return {
      endSeconds: this.seconds,
      enrolments: this.enrolments - enrolmentsBefore,
      cpuSeconds: end.cpuSeconds - cpuSeconds,
      least: byMemory.at(0) ?? end,
      most: byMemory.at(-1) ?? end,
      end,
      held: await agent.held(),
    };
  }

  get #reached(): number {
    const { enrolments, seconds } = this.#limits;
    return Math.max(this.enrolments / enrolments, this.seconds / seconds);
  }

  async #round(): Promise<void> {
    const { pods, enrolments } = this.#limits;
    const count = Math.min(ROUND_PODS, pods, enrolments - this.enrolments);
    if (this.#rounds % 2 === 0) {
      await this.#node.leaveAndJoin(count);
    } else {
      await this.#node.remove(count);
      await this.#node.add(count);
    }
    this.#rounds += 1;
    const said = Math.floor(this.enrolments / SAID_EACH);
    this.enrolments += count;
    if (Math.floor(this.enrolments / SAID_EACH) > said) this.#say(`${this.enrolments} enrolments`);
  }
}

/** Soaks a node agent; returns its failures. */
export async function soakEnrolments(
  limits: EnrolmentSoak,
  say: (text: string) => void,
): Promise<readonly string[]> {
  const { pods } = limits;
  await using made = new AsyncDisposableStack();
  const owner = {
    teardown: (end: () => void | Promise<void>): void => made.defer(end),
    log: say,
  };
  const node = await EnrolledNode.start(owner);
  const { agent } = node;
  // The first pod finds the agent started, and its code compiled.
  await node.add(1);
  const idle = await agent.usage();
  const heldIdle = await agent.held();
  const joining = await agent.usage();
  const joiningAtMs = performance.now();
  await node.add(pods - 1);
  const joinSeconds = (performance.now() - joiningAtMs) / 1_000;
  const before = await agent.usage();
  const heldBefore = await agent.held();
  say(`${pods} pods enrolled after ${joinSeconds.toFixed(1)} s`);

  const rounds = new Rounds(node, limits, say);
  const first = await rounds.third(1 / 3);
  const second = await rounds.third(2 / 3);
  const last = await rounds.third(1);
  const { seconds, enrolments } = rounds;
  const thirds = [first, second, last];
  const after = last.end;
  const strays = await node.strays(after);
  await node.remove(pods - 1);
  const alone = await agent.usage();
  const heldAlone = await agent.held();

  const problems = [
    ...heldDescriptors([before], [after]),
    ...heldDescriptors([idle], [alone]),
    ...(strays > 0 ? [`${strays} namespaces of no pod are held`] : []),
    ...(after.namespaces.size < pods ? [`only ${after.namespaces.size} namespaces are held`] : []),
    ...grownMemory([second.least], [last.least], seconds),
    ...grownHeld(first.held, last.held),
  ];
  const cpu = (cpuSeconds: number, count: number): string =>
    ((1_000 * cpuSeconds) / Math.max(1, count)).toFixed(0);
  const held = [heldIdle, heldBefore, ...thirds.map((third) => third.held), heldAlone];
  const memory = [
    mib(idle),
    mib(before),
    ...thirds.map(({ least, most }) => `${mib(least)}–${mib(most)}`),
    mib(alone),
  ];
  process.stdout.write(
    [
      `soak ${problems.length === 0 ? 'ok' : `FAILED (${problems.length})`}: ${pods} pods enrolled in ${joinSeconds.toFixed(1)} s`,
      `${cpu(before.cpuSeconds - joining.cpuSeconds, pods - 1)} ms of processor time each`,
      `${enrolments} of ${limits.enrolments} more in ${seconds.toFixed(0)} s`,
      `thirds ended after ${thirds.map(({ endSeconds }) => endSeconds.toFixed(0)).join(', ')} s`,
      `${thirds.map((third) => cpu(third.cpuSeconds, third.enrolments)).join(', ')} ms of processor time each`,
      `descriptors ${idle.descriptors} → ${before.descriptors} → ${after.descriptors} → ${alone.descriptors}`,
      `namespaces ${before.namespaces.size} → ${after.namespaces.size} → ${alone.namespaces.size}`,
      `memory ${memory.join(', ')} MiB`,
      `without garbage ${held.map((one) => mib(one)).join(', ')} MiB, of it heap ${held.map(({ heapBytes }) => mib({ ownBytes: heapBytes }, 1)).join(', ')} MiB`,
    ].join('; ') + '\n',
  );
  return problems;
}
