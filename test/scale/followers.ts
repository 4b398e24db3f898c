/** Followers of a control plane: ingesters with a Redis, and node proxies. Measures a takeover and the memory of a proxy. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { get } from '../../lib/http/node-http.ts';
import { bareEnvironment } from '../support/bare-environment.ts';
import { startTestRedis } from '../support/redis.ts';
import { until } from '../support/until.ts';
import { memoryOf } from './plane.ts';
import type { Memory } from './plane.ts';

const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;
/** A node without pods, so that its proxy asks for no certificates. */
const NODE = 'elsewhere';
const POLL_MS = 10;
const LONGEST_MS = 240_000;

/** The control plane to follow. */
export interface Followed {
  readonly address: string;
  readonly rootCa: string;
  /** File with the token of a node's account. */
  readonly token: string;
  /** The namespace of that account. */
  readonly namespace: string;
  /** A folder for sockets. */
  readonly dir: string;
  readonly workloads: number;
  /** How long a process is left alone before its memory is read. */
  readonly idleMs: number;
}

/** Figures of the followers. */
export interface FollowerFigures {
  /** From the SIGKILL of the leading ingester until the other one has compared Redis with its own state, and writes. */
  readonly takeoverMs: number;
  /** A node proxy with the mesh, and one with a Redis without any workload. */
  readonly proxy: Memory;
  readonly emptyProxy: Memory;
}

type Made = Parameters<typeof startTestRedis>[0];

/** Starts them, measures, and leaves their end to `made`. */
export async function measureFollowers(made: Made, followed: Followed): Promise<FollowerFigures> {
  const nodes = [NODE];
  const [redis, empty] = [
    await startTestRedis(made, { nodes }),
    await startTestRedis(made, { nodes }),
  ];
  const ingester = (name: string): Role =>
    Role.start(made, 'xds-ingester', join(followed.dir, `${name}.sock`), {
      ...redis.environment('xds-ingester'),
      ...xds(followed, name),
    });
  const leader = ingester('ingester-0');
  await leader.until(isPublished, 'the mesh to be in Redis');
  const standby = ingester('ingester-1');
  await standby.until(({ live }) => live, 'the standby to follow the mesh');
  const killedMs = performance.now();
  await leader.kill();
  await standby.until((state) => state.leading && isPublished(state), 'the takeover');
  const takeoverMs = performance.now() - killedMs;
  const proxy = (name: string, environment: Readonly<Record<string, string>>): Role =>
    Role.start(made, 'node-proxy', join(followed.dir, `${name}.sock`), {
      ...environment,
      ...xds(followed, name),
      NODE_NAME: NODE,
      INPOD_UDS: join(followed.dir, `${name}.zds`),
      CA_ROOT_CA: followed.rootCa,
    });
  const whole = proxy('proxy-0', redis.environment(`node-proxy.${NODE}`));
  const none = proxy('proxy-1', empty.environment(`node-proxy.${NODE}`));
  await until(async () => (await whole.workloads()) >= followed.workloads, {
    what: 'the proxy to hold the mesh',
    timeoutMs: LONGEST_MS,
  });
  // It answers once it runs; there is nothing that it could wait for.
  await until(async () => (await none.workloads()) === 0, { what: 'the other proxy' });
  await sleep(followed.idleMs);
  return { takeoverMs, proxy: await whole.memory(), emptyProxy: await none.memory() };
}

function xds(followed: Followed, name: string): Record<string, string> {
  return {
    XDS_ADDRESS: followed.address,
    XDS_ROOT_CA: followed.rootCa,
    AUTH_TOKEN: followed.token,
    POD_NAME: name,
    POD_NAMESPACE: followed.namespace,
    INSTANCE_IP: '127.0.0.1',
  };
}

/** The answer of an ingester to `GET /xds-ingester/state`. */
interface IngesterState {
  readonly leading: boolean;
  readonly live: boolean;
  readonly published: boolean;
}

const isPublished = ({ live, published }: IngesterState): boolean => live && published;

/** A process of a role, in a network of its own but for the ingester, which needs the control plane. */
class Role {
  readonly #child: ChildProcess;
  readonly #admin: string;

  private constructor(child: ChildProcess, admin: string) {
    this.#child = child;
    this.#admin = admin;
  }

  static start(
    made: Made,
    role: 'xds-ingester' | 'node-proxy',
    admin: string,
    environment: Readonly<Record<string, string>>,
  ): Role {
    // It must not outlive this process, however that ends.
    const dying = ['--pdeathsig', 'KILL'];
    const apart = role === 'node-proxy' ? ['unshare', '--net'] : [];
    const child = spawn('setpriv', [...dying, ...apart, WEFT, 'run', role], {
      env: bareEnvironment({ ...environment, WEFT_ADMIN_ADDRESS: `unix:${admin}` }),
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const started = new Role(child, admin);
    made.teardown(() => started.kill());
    return started;
  }

  async until(condition: (state: IngesterState) => boolean, what: string): Promise<void> {
    const end = performance.now() + LONGEST_MS;
    for (; ; await sleep(POLL_MS)) {
      const answer = await this.#ask('/xds-ingester/state').catch(() => null);
      if (answer !== null && condition(JSON.parse(answer) as IngesterState)) return;
      if (performance.now() > end) throw new Error(`waited too long for ${what}`);
    }
  }

  /** The workloads that a proxy holds. */
  async workloads(): Promise<number> {
    const metrics = await this.#ask('/metrics');
    return Number(/^weft_state_objects\{kind="workload"[^}]*\} (\d+)/m.exec(metrics)?.[1] ?? 0);
  }

  memory(): Promise<Memory> {
    return memoryOf(this.#child.pid ?? 0);
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }

  async #ask(path: string): Promise<string> {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      get({ socketPath: this.#admin, path, agent: false }, resolve).on('error', reject);
    });
    const answer = await text(response);
    // A path is unknown until its role has started.
    if (response.statusCode !== 200) throw new Error(answer);
    return answer;
  }
}
