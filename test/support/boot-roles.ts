/** Four roles of a local mesh whose processes the test starts and kills: agent and proxy of node-1, the Redis and the ingester. */
import { execFileSync } from 'node:child_process';
import { cp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { redisAnswers } from '../../services/local-mesh/redis.ts';
import { askState } from '../../services/local-mesh/managed-process.ts';
import { killAll } from './mesh-faults.ts';
import type { RunningCommand, TestMesh } from './mesh.ts';
import { until } from './until.ts';

const WEFT = new URL('../../services/cli/weft', import.meta.url).pathname;

/** The roles. */
export const BOOT_ROLES = ['node-agent', 'node-proxy', 'redis', 'xds-ingester'] as const;
export type BootRole = (typeof BOOT_ROLES)[number];

/** The node whose agent and proxy are started by hand. */
export const BOOT_NODE = 'node-1';

/** Arguments of `weft up` that leave the actors among the roles to the test. */
export const BOOT_ARGUMENTS = [
  '--external',
  `${BOOT_NODE}/node-agent,${BOOT_NODE}/node-proxy,xds-ingester`,
] as const;

/** Starts and kills the roles of a mesh that was brought up with {@link BOOT_ARGUMENTS}. */
export class BootRoles {
  readonly #mesh: TestMesh;
  readonly #commands: ReadonlyMap<BootRole, string>;
  readonly #running = new Map<BootRole, RunningCommand>();

  private constructor(mesh: TestMesh, commands: ReadonlyMap<BootRole, string>) {
    this.#mesh = mesh;
    this.#commands = commands;
  }

  /** Takes the roles over; none runs afterwards. `agent` is added to the environment of the agent. */
  static async take(mesh: TestMesh, agent: Readonly<Record<string, string>>): Promise<BootRoles> {
    const redis = join(mesh.directory, 'redis');
    await cp(join(redis, 'redis.conf'), join(redis, 'own.conf'));
    // The supervisor's Redis stops at its configuration, which is a pipe from now on, and leaves the socket to the test's.
    execFileSync('mkfifo', [join(redis, 'pipe')]);
    await rename(join(redis, 'pipe'), join(redis, 'redis.conf'));
    const { pid } = (await mesh.status()).redis;
    if (pid !== null) await killAll([pid]);
    const added = Object.entries(agent).map(([name, value]) => `export ${name}='${value}'\n`);
    const actor = async (role: BootRole, name: string, netns: string): Promise<string> => {
      const { code, stdout, stderr } = await mesh.weft('env', name);
      if (code !== 0) throw new Error(`weft env ${name}: ${stderr}`);
      const more = role === 'node-agent' ? added.join('') : '';
      return `${stdout}${more}unset WEFT_MESH\nexec nsenter --net=${mesh.netns(netns)} ${WEFT} run ${role}`;
    };
    const commands = new Map<BootRole, string>([
      ['node-agent', await actor('node-agent', `${BOOT_NODE}/node-agent`, BOOT_NODE)],
      ['node-proxy', await actor('node-proxy', `${BOOT_NODE}/node-proxy`, BOOT_NODE)],
      ['xds-ingester', await actor('xds-ingester', 'xds-ingester', 'ctl')],
      ['redis', `exec redis-server ${join(redis, 'own.conf')}`],
    ]);
    return new BootRoles(mesh, commands);
  }

  /** Starts a role. Resolves when its process answers, which may be long before it is ready. */
  async start(role: BootRole): Promise<void> {
    const running = this.#mesh.start('bash', ['-c', this.#commands.get(role) ?? '']);
    this.#running.set(role, running);
    const ended = running.exit.then(({ code, stdout, stderr }) => {
      throw new Error(`${role} ended with ${code}:\n${stdout.slice(-2_000)}${stderr}`);
    });
    // Tests kill it later: its end is a failure only until it answers.
    ended.catch(() => undefined);
    await Promise.race([until(() => this.#answers(role), { what: `${role} to answer` }), ended]);
  }

  /** Waits until the actors among the roles are ready. */
  async ready(): Promise<void> {
    for (const role of BOOT_ROLES) {
      if (role === 'redis') continue;
      await until(async () => (await askState(this.#admin(role))).state === 'ready', {
        what: `${role} to be ready`,
      });
    }
  }

  /** Sends SIGKILL to the role and waits for its end. */
  async kill(role: BootRole): Promise<void> {
    const running = this.#running.get(role);
    this.#running.delete(role);
    running?.kill('SIGKILL');
    await running?.exit;
  }

  async killAll(): Promise<void> {
    await Promise.all(BOOT_ROLES.map((role) => this.kill(role)));
  }

  /** Removes what the Redis has on disk, while it does not run. */
  async loseData(): Promise<void> {
    await rm(join(this.#mesh.directory, 'redis', 'data', 'appendonlydir'), {
      recursive: true,
      force: true,
    });
  }

  /** Returns the last lines that a role has printed. */
  output(role: BootRole): string {
    return this.#running.get(role)?.output().slice(-8_000) ?? 'not running';
  }

  async #answers(role: BootRole): Promise<boolean> {
    if (role === 'redis') return redisAnswers(join(this.#mesh.directory, 'redis', 'redis.sock'));
    return (await askState(this.#admin(role))).state !== 'created';
  }

  #admin(role: BootRole): string {
    const name = role === 'xds-ingester' ? role : `${role}.${BOOT_NODE}`;
    return join(this.#mesh.directory, 'admin', `${name}.sock`);
  }
}
