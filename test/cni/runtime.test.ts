/** weft-runtime alone, with a runc and an engine's files of the test's own: what it passes on, whom it asks, and what it refuses. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { createServer } from '../../lib/http/node-http.ts';
import { makeScratch } from '../support/leftovers.ts';
import { PLUGIN_PATH } from './support/plugin.ts';

const ID = 'c0ffee'.padEnd(64, '0');
const AMBIENT = { 'istio.io/dataplane-mode': 'ambient', 'weft.io/pod': 'demo/web' };
const OWN_NETWORK = [{ type: 'pid' }, { type: 'network' }];

/** A created container, as runc and the engine describe it. */
interface Created {
  readonly labels?: Readonly<Record<string, string>> | null;
  readonly namespaces?: readonly Readonly<Record<string, string>>[];
  /** Files that are to hold this text instead. */
  readonly broken?: Readonly<Record<string, string>>;
  /** The answers of the agent, the last one for ever; none where it is away. */
  readonly answers?: readonly (readonly [status: number, text: string])[];
  /** Kills the runtime instead of the first answer. */
  readonly killed?: boolean;
}

/** An end of the runtime. */
interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  /** The commands that runc got. */
  readonly commands: readonly string[];
  /** The error that the engine shows; null where the log has none. */
  readonly told: string | null;
  /** The questions to the agent. */
  readonly asked: readonly unknown[];
}

/** Runs the runtime with these words on a created container. `root` stands in the words for a folder of the test's. */
async function run(
  t: ExecutionContext,
  { labels = AMBIENT, namespaces = OWN_NETWORK, broken = {}, answers = [], killed }: Created,
  words: readonly string[] = ['--root', 'root/moby', '--log', 'root/log', 'start', ID],
): Promise<Ended> {
  const dir = await makeScratch('runtime');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const folder = join(dir, 'containers', ID);
  await mkdir(folder, { recursive: true });
  const mounts = [{ source: '/dev/null' }, { source: join(folder, 'hosts') }];
  const files = {
    state: JSON.stringify({ id: ID, pid: 0x7fff_fff0, bundle: dir }),
    'config.json': JSON.stringify({ mounts, linux: { namespaces } }),
    [`containers/${ID}/config.v2.json`]: JSON.stringify({ Config: { Labels: labels } }),
    log: '',
    ...broken,
  };
  for (const [name, content] of Object.entries(files)) await writeFile(join(dir, name), content);
  const runc = join(dir, 'runc');
  const script = `#!/bin/sh\necho "$*" >> ${dir}/commands\ncase "$*" in *" state "*) cat ${dir}/state;; *" kill "*) ;; *) echo ran; exit 7;; esac\n`;
  await writeFile(runc, script, { mode: 0o755 });
  const asked: unknown[] = [];
  const socket = join(dir, 'agent.sock');
  const kill = killed === true ? (): boolean => child.kill('SIGKILL') : null;
  if (answers.length > 0) await serve(t, socket, { answers, asked, kill });
  const program = join(dir, 'weft-runtime');
  await symlink(PLUGIN_PATH, program);
  const own = [`--weft-runc=${runc}`, `--weft-agent=${socket}`];
  const passed = words.map((word) => word.replace(/^root/, dir));
  const child = spawn(program, [...own, ...passed], { stdio: ['ignore', 'pipe', 'ignore'] });
  const [stdout, [code]] = await Promise.all([
    text(child.stdout),
    once(child, 'exit') as Promise<[number | null]>,
  ]);
  const log = await readFile(join(dir, 'log'), 'utf8');
  const commands = (await readFile(join(dir, 'commands'), 'utf8')).trim().replaceAll(dir, 'root');
  const told = log === '' ? null : (JSON.parse(log) as { msg: string }).msg.replaceAll(dir, 'root');
  return { code, stdout, commands: commands.split('\n'), told, asked };
}

async function serve(
  t: ExecutionContext,
  socket: string,
  {
    answers,
    asked,
    kill,
  }: {
    readonly answers: readonly (readonly [number, string])[];
    readonly asked: unknown[];
    readonly kill: (() => boolean) | null;
  },
): Promise<void> {
  const server = createServer({}, (request, response) => {
    const [status, said] = answers[Math.min(asked.length, answers.length - 1)] ?? [500, ''];
    void text(request).then((body) => {
      asked.push(JSON.parse(body));
      if (kill?.() === true) return;
      response.writeHead(request.url === '/start' ? status : 404).end(`${said}\n`);
    });
  });
  server.listen(socket);
  await once(server, 'listening');
  t.teardown(() => server.close());
}

const GLOBAL = '--root root/moby --log root/log';
/** The commands that end the created process. */
const DISCARDED = [`${GLOBAL} state ${ID}`, `${GLOBAL} kill ${ID} KILL`];
const PASSED = { code: 7, stdout: 'ran\n', told: null };

test('any other command becomes runc, with the same words, output and status', async (t) => {
  const words = ['--root', 'root/moby', 'exec', '--process', 'a  b', '', ID];
  const { commands, ...ended } = await run(t, {}, words);
  t.like(ended, PASSED);
  t.deepEqual(commands, [`--root root/moby exec --process a  b  ${ID}`]);
});

test('a container of the mesh starts when the agent agrees', async (t) => {
  const ended = await run(t, { answers: [[200, 'enrolled']] });
  t.like(ended, PASSED);
  t.deepEqual(ended.commands, [`${GLOBAL} state ${ID}`, `${GLOBAL} start ${ID}`]);
  t.deepEqual(ended.asked, [{ ContainerID: ID, Pid: 0x7fff_fff0, Labels: AMBIENT }]);
});

test('an agent that is not ready is asked again, and one that refuses is not', async (t) => {
  const slow = await run(t, {
    answers: [
      [500, 'no proxy'],
      [503, 'unknown'],
      [200, ''],
    ],
  });
  t.like(slow, PASSED);
  t.is(slow.asked.length, 3);
  const refused = await run(t, { answers: [[409, 'demo/web exists already']] });
  t.like(refused, { code: 1, stdout: '', told: 'weft-runtime: demo/web exists already' });
  t.deepEqual(refused.commands, [`${GLOBAL} state ${ID}`, ...DISCARDED]);
  t.is(refused.asked.length, 1);
});

test('a runtime that is killed while it asks has ended its container when its output ends', async (t) => {
  const ended = await run(t, { answers: [[200, '']], killed: true });
  t.like(ended, { code: null, stdout: '', told: null });
  t.deepEqual(ended.commands, [`${GLOBAL} state ${ID}`, ...DISCARDED]);
});

test('what has no own network, or no label, starts without a question', async (t) => {
  const answers = [[409, 'asked']] as const;
  for (const created of [
    { namespaces: [{ type: 'pid' }] },
    { namespaces: [{ type: 'network', path: '/proc/7/ns/net' }] },
    { labels: { other: 'label' } },
    { labels: null },
  ]) {
    const ended = await run(t, { ...created, answers });
    t.like(ended, PASSED);
    t.is(ended.asked.length, 0);
  }
  const plugin = ['--root', 'root/plugins.moby', '--log', 'root/log', 'start', ID];
  t.like(await run(t, { answers, broken: { 'config.json': pluginSpec() } }, plugin), PASSED);
});

/** The engine's plugins have a network of their own and no folder of a container. */
function pluginSpec(): string {
  return JSON.stringify({ linux: { namespaces: OWN_NETWORK } });
}

test('without an agent only what does not claim to be in the mesh starts', async (t) => {
  const pod = { 'weft.io/pod': 'demo/web' };
  for (const labels of [
    { ...pod, 'istio.io/dataplane-mode': 'none' },
    { ...pod, 'weft.io/node': 'node-1' },
  ]) {
    t.like(await run(t, { labels }), PASSED);
    // The agent is asked where it is there.
    t.like(await run(t, { labels, answers: [[409, 'no']] }), { code: 1 });
  }
  const ended = await Promise.all(
    [AMBIENT, pod, { ...AMBIENT, 'weft.io/node': 'node-1' }].map((labels) => run(t, { labels })),
  );
  for (const { code, told } of ended) {
    t.is(code, 1);
    t.is(
      told,
      'weft-runtime: the container is to be in the mesh, but the node agent cannot be reached: root/agent.sock: No such file or directory',
    );
  }
});

test('a container that cannot be judged does not start, and the reason names the file', async (t) => {
  const config = `containers/${ID}/config.v2.json`;
  const answers = [[200, '']] as const;
  for (const [broken, reason] of [
    [{ 'config.json': '{' }, /^weft-runtime: root\/config\.json is no JSON: /],
    [{ 'config.json': pluginSpec() }, /no file of a Docker engine is mounted in the container$/],
    [{ [config]: '' }, /config\.v2\.json is no JSON: /],
    [{ [config]: '{}' }, /config\.v2\.json has no Config$/],
    [{ state: '{}' }, /the container's state has no pid$/],
    [{ state: 'none' }, /the container's state is no JSON: /],
  ] as const) {
    const ended = await run(t, { broken, answers });
    t.like(ended, { code: 1, stdout: '' });
    t.is(ended.asked.length, 0);
    t.regex(ended.told ?? '', reason);
  }
});
