/** A node agent under test, with its directories and its Redis, and ways to observe it. */
import { DrainDeadline } from '../../lib/actor/drain.ts';
import { FakeClock } from './fake-clock.ts';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { Enrolment } from '../../lib/state/enrolment.ts';
import { nodeAgentConfig } from '../../services/node-agent/config.ts';
import type { EnrolmentView } from '../../services/node-agent/node-enrolments.ts';
import { NodeAgentActor } from '../../services/node-agent/node-agent-actor.ts';
import { startActor } from './actor-context.ts';
import type { TeardownOwner, TestActor } from './actor-context.ts';
import { bareEnvironment } from './bare-environment.ts';
import { TableCopy, openBus } from './bus.ts';
import { startTestRedis } from './redis.ts';
import type { TestRedis } from './redis.ts';
import { makeScratch } from './leftovers.ts';

/** Ends a site: a test, or a program that is none. */
export type SiteOwner = TeardownOwner & { log(text: string): void };

/** The directories and the Redis of an agent under test. */
export interface AgentSite {
  readonly podsDir: string;
  readonly socket: string;
  readonly redis: TestRedis;
  readonly environment: Record<string, string>;
  /** Returns the rows of the node's enrolments table as a reader sees them. */
  readonly rows: () => ReadonlyMap<string, Enrolment>;
}

/** An agent that runs in the test. */
export interface TestAgent extends TestActor {
  /** Ends as on SIGTERM, before {@link TestActor.stop}. */
  drain(): Promise<void>;
  enrolments(): readonly EnrolmentView[];
  state(uid: string): string | undefined;
  /** Asks a route of the agent and resolves to its answer. */
  ask(method: string, path: string): Promise<unknown>;
}

/** Makes directories and a Redis for one agent. */
export async function agentSite(
  t: SiteOwner,
  environment: Record<string, string> = {},
): Promise<AgentSite> {
  const dir = await makeScratch('agent');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const podsDir = join(dir, 'pods');
  await mkdir(podsDir);
  const redis = await startTestRedis(t);
  const copy = new TableCopy();
  openBus(t, redis.config()).bus.reader('enrolments', { node: 'node-1' }, copy);
  return {
    podsDir,
    socket: join(dir, 'zds', 'ztunnel.sock'),
    redis,
    environment: {
      ...redis.environment('node-agent.node-1'),
      WEFT_NODE_AGENT_PODS_DIR: podsDir,
      INPOD_UDS: join(dir, 'zds', 'ztunnel.sock'),
      CONNECTION_TERMINATION_DEADLINE: '300ms',
      FORCE_IPTABLES_BINARY: 'nft',
      ...environment,
    },
    rows: () => new Map([...copy.rows].map(([uid, text]) => [uid, JSON.parse(text) as Enrolment])),
  };
}

/** Starts an agent at the site. */
export async function startAgent(
  t: ExecutionContext,
  site: Pick<AgentSite, 'environment'>,
  node = 'node-1',
): Promise<TestAgent> {
  const actor = new NodeAgentActor({
    ...nodeAgentConfig.parse(site.environment),
    rescanMs: 300,
    driftIntervalMs: 200,
  });
  const hosted = await startActor(t, actor, 'node-agent', node);
  const call = (method: string, path: string): { readonly done: unknown; body: string } => {
    const answer = { done: undefined as unknown, body: '[]' };
    const response = { writeHead: () => undefined, end: (text: string) => (answer.body = text) };
    const route = hosted.routes.get(`${method} ${path}`);
    answer.done = route?.({} as never, response as never, new URL('http://agent/'));
    return answer;
  };
  const enrolments = (): readonly EnrolmentView[] =>
    JSON.parse(call('GET', '/enrolments').body) as EnrolmentView[];
  return {
    ...hosted,
    drain: () => actor.drain(new DrainDeadline(new FakeClock(), 1)),
    enrolments,
    ask: async (method, path) => {
      const answer = call(method, path);
      await answer.done;
      return JSON.parse(answer.body) as unknown;
    },
    state: (uid) => enrolments().find((row) => row.podUid === uid)?.state,
  };
}

/** Reads the value of the metric line that starts with `name`. */
export async function metric(agent: TestAgent, name: string): Promise<number> {
  const line = (await agent.metrics()).split('\n').find((text) => text.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1) ?? Number.NaN);
}

/** Starts an agent as a process of its own, at the end of the command `enter`, which must turn into it. The end of the test kills it. */
export function spawnAgent(
  t: TeardownOwner,
  site: AgentSite,
  enter: readonly string[] = [],
): ChildProcess {
  const script = new URL('node-agent-process.ts', import.meta.url).pathname;
  const [command, ...words] = [...enter, process.execPath, script];
  const child = spawn(command, words, {
    env: bareEnvironment({ NODE_NAME: 'node-1', ...site.environment }),
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  t.teardown(() => killed(child));
  return child;
}

/** Sends SIGKILL and waits for the end of the process. */
export async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}
