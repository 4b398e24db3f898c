/** The plugin alone, with real sockets: its commands, its errors, and agents that misbehave. */
import { once } from 'node:events';
import { mkdir, readFile, rm, stat } from 'node:fs/promises';
import { createServer as createHttpServer } from '../../lib/http/node-http.ts';
import type { RequestListener } from 'node:http';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { readAddEvent } from '../../services/node-agent/cni/add-event.ts';
import { makeScratch } from '../support/leftovers.ts';
import { PLUGIN_PATH, addEnvironment, runPlugin } from './support/plugin.ts';

const MAX_BYTES = 200_000;
const RESULT = {
  cniVersion: '1.0.0',
  interfaces: [{ name: 'eth0', mac: 'aa:bb', sandbox: '/run/netns/x' }],
  ips: [
    { address: '10.0.0.5/24', gateway: '10.0.0.1', interface: 0 },
    { address: 'fd00::5/64', interface: 0 },
  ],
  dns: {},
};

async function runDir(t: ExecutionContext): Promise<string> {
  const dir = await makeScratch('cni');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

function config(dir: string, changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    cniVersion: '1.0.0',
    name: 'net',
    type: 'weft-cni',
    cni_agent_run_dir: dir,
    exclude_namespaces: ['kube-system'],
    pod_namespace: 'weft-system',
    own_daemonsets: ['weft-node-agent', 'weft-node-proxy'],
    on_unknown: 'deny',
    prevResult: RESULT,
    ...changes,
  };
}

async function listenAt(t: ExecutionContext, server: Server, dir: string): Promise<void> {
  server.listen(join(dir, 'pluginevent.sock'));
  await once(server, 'listening');
  t.teardown(() => server.close());
}

/** Answers each event with a status and a text, and keeps the bodies. */
async function agent(
  t: ExecutionContext,
  dir: string,
  status: number,
  reason = '',
): Promise<string[]> {
  const bodies: string[] = [];
  const answer: RequestListener = (request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      bodies.push(`${request.method} ${request.url} ${body}`);
      response.writeHead(status).end(reason);
    });
  };
  await listenAt(t, createHttpServer(answer), dir);
  return bodies;
}

const add = (
  dir: string,
  pod: string | null,
  changes: Record<string, unknown> = {},
): ReturnType<typeof runPlugin> =>
  runPlugin(addEnvironment(pod), JSON.stringify(config(dir, changes)));

test('it is a static program below 200 kilobytes', async (t) => {
  t.true((await stat(PLUGIN_PATH)).size < MAX_BYTES);
  const elf = await readFile(PLUGIN_PATH);
  const headers = Array.from({ length: elf.readUInt16LE(56) }, (_, index) =>
    elf.readUInt32LE(Number(elf.readBigUInt64LE(32)) + index * elf.readUInt16LE(54)),
  );
  const interpreter = 3;
  t.false(headers.includes(interpreter), 'it names no dynamic loader');
});

test('VERSION tells the versions, whatever is asked with', async (t) => {
  const supportedVersions = ['0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'];
  for (const [input, cniVersion] of [
    ['{"cniVersion":"0.4.0"}', '0.4.0'],
    ['{"cniVersion":"9.9.9"}', '1.1.0'],
    ['', '1.1.0'],
  ] as const) {
    const { code, answer } = await runPlugin({ CNI_COMMAND: 'VERSION' }, input);
    t.is(code, 0);
    t.deepEqual(answer, { cniVersion, supportedVersions });
  }
});

test('DEL, GC and STATUS succeed without an agent, and with any input', async (t) => {
  for (const command of ['DEL', 'GC', 'STATUS']) {
    for (const input of ['', 'no json', JSON.stringify(config('/nowhere'))]) {
      const { code, stdout } = await runPlugin({ CNI_COMMAND: command }, input);
      t.is(code, 0, command);
      t.is(stdout, '');
    }
  }
});

test('CHECK succeeds for a valid configuration, and only for one', async (t) => {
  const environment = addEnvironment('demo/web', { CNI_COMMAND: 'CHECK' });
  t.is((await runPlugin(environment, JSON.stringify(config('/nowhere')))).code, 0);
  t.is((await runPlugin(environment, 'x')).answer?.['code'], 6);
});

test('pods that are exempt pass without an agent', async (t) => {
  for (const pod of ['kube-system/dns', 'weft-system/weft-node-agent-x7k2p', null]) {
    const { code, answer } = await add('/nowhere', pod);
    t.is(code, 0, pod ?? 'no pod');
    t.deepEqual(answer, RESULT);
  }
});

test('only pods of its own DaemonSets are exempt in its own namespace', async (t) => {
  for (const pod of [
    'weft-system/weft-node-agent-evil',
    'weft-system/weft-node-agent-x7k2p-x7k2p',
    'weft-system/other-x7k2p',
    'other/weft-node-agent-x7k2p',
  ]) {
    t.is((await add('/nowhere', pod)).answer?.['code'], 11, pod);
  }
});

test('the result comes in the version that was asked for, and foreign fields keep their bytes', async (t) => {
  const previous =
    '{ "ips":[ {"address":"10.0.0.5/24" , "x" : 1.00}],"z":12345678901234567890,"cniVersion" :"1.0.0","\\u0061":"\\u00e9"}';
  const text = (version: string): string =>
    JSON.stringify(config('/nowhere', { cniVersion: version, prevResult: null })).replace(
      '"prevResult":null',
      `"prevResult":${previous}`,
    );
  const environment = addEnvironment('kube-system/dns');
  const newest = await runPlugin(environment, text('1.1.0'));
  t.is(newest.stdout, `${previous.replace('1.0.0"', '1.1.0"')}\n`);
  for (const version of ['0.3.0', '0.3.1']) {
    const oldest = await runPlugin(environment, text(version));
    const expected = previous
      .replace('1.0.0"', `${version}"`)
      .replace('{"address"', '{"version":"4","address"');
    t.is(oldest.stdout, `${expected}\n`);
  }
});

test('without a previous result the answer is an empty one', async (t) => {
  for (const prevResult of [undefined, null]) {
    const { answer } = await add('/nowhere', 'kube-system/dns', { prevResult });
    t.deepEqual(answer, { cniVersion: '1.0.0', dns: {} });
  }
});

test("the agent gets istio-cni's event, and the pod starts when it agrees", async (t) => {
  const dir = await runDir(t);
  const bodies = await agent(t, dir, 200);
  const environment = addEnvironment('demo/web', {
    CNI_NETNS: '/run/netns/x',
    CNI_ARGS: 'K8S_POD_NAMESPACE=demo;K8S_POD_NAME=web;K8S_POD_UID=u-1',
  });
  const { code, answer } = await runPlugin(environment, JSON.stringify(config(dir)));
  t.is(code, 0);
  t.deepEqual(answer, RESULT);
  t.is(bodies.length, 1);
  const body = JSON.parse((bodies[0] ?? '').replace('POST /cmdadd ', '')) as Record<
    string,
    unknown
  >;
  t.deepEqual(body['IPs'], [
    { Interface: 0, Address: { IP: '10.0.0.5', Mask: '////AA==' }, Gateway: '10.0.0.1' },
    { Interface: 0, Address: { IP: 'fd00::5', Mask: '//////////8AAAAAAAAAAA==' } },
  ]);
  t.deepEqual(readAddEvent(body), {
    netns: '/run/netns/x',
    namespace: 'demo',
    name: 'web',
    uid: 'u-1',
    addresses: ['10.0.0.5', 'fd00::5'],
    agentDecides: true,
  });
});

test('an agent that refuses keeps the pod from starting, with its reason', async (t) => {
  for (const [status, code] of [
    [500, 11],
    [400, 4],
    [404, 11],
  ] as const) {
    const dir = await runDir(t);
    await agent(t, dir, status, 'no proxy is connected\n');
    const { code: end, answer } = await add(dir, 'demo/web');
    t.is(end, 1);
    t.is(answer?.['code'], code);
    t.is(answer?.['msg'], 'pod demo/web was not enrolled in the mesh: no proxy is connected');
    t.is(answer?.['cniVersion'], '1.0.0');
  }
});

test('an agent that cannot tell leaves it to the setting', async (t) => {
  const dir = await runDir(t);
  await agent(t, dir, 503, 'the API server is away');
  t.is((await add(dir, 'demo/web')).answer?.['code'], 11);
  const allowed = await add(dir, 'demo/web', { on_unknown: 'allow' });
  t.is(allowed.code, 0);
  t.deepEqual(allowed.answer, RESULT);
  t.regex(allowed.stderr, /pod demo\/web started outside the mesh.*the API server is away/);
});

test('without an agent and a helper nobody can tell', async (t) => {
  const dir = await runDir(t);
  const { answer } = await add(dir, 'demo/web');
  t.is(answer?.['code'], 11);
  t.regex(String(answer?.['msg']), /cannot be reached.*No such file.*no helper/);
  t.is((await add(dir, 'demo/web', { on_unknown: 'allow' })).code, 0);
});

test('an agent that is silent or speaks no HTTP counts as dead', async (t) => {
  const hostile: Readonly<Record<string, (socket: Socket) => void>> = {
    silent: () => undefined,
    'closes at once': (socket) => socket.destroy(),
    'no HTTP': (socket) => socket.end('SSH-2.0-OpenSSH\r\n\r\n'),
    'half a header': (socket) => socket.end('HTTP/1.1 200 OK\r\n'),
    'no status': (socket) => socket.end('HTTP/1.1 2x0 OK\r\n\r\n'),
    'an endless header': (socket) => {
      const more = (): void => {
        while (!socket.destroyed && socket.write('x'.repeat(16_384)));
      };
      socket.on('drain', more);
      more();
    },
    'a byte a second': (socket) => {
      const timer = setInterval(() => socket.write('H'), 1_000);
      socket.on('close', () => clearInterval(timer));
    },
  };
  const ends = Object.entries(hostile).map(async ([name, behave]) => {
    const dir = await runDir(t);
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      behave(socket);
    });
    await listenAt(t, server, dir);
    return [name, await add(dir, 'demo/web')] as const;
  });
  for (const [name, { code, answer }] of await Promise.all(ends)) {
    t.is(code, 1, name);
    t.is(answer?.['code'], 11, name);
    t.regex(String(answer?.['msg']), /nobody can tell whether pod demo\/web/, name);
  }
});

test('bad input gets the code of the specification and names what is wrong', async (t) => {
  const valid = JSON.stringify(config('/nowhere'));
  const environment = addEnvironment('demo/web');
  const without = (name: string): Record<string, string> => ({ ...environment, [name]: '' });
  const withConfig = (changes: Record<string, unknown>): string =>
    JSON.stringify(config('/nowhere', changes));
  const cases: readonly (readonly [Record<string, string>, string, number, RegExp])[] = [
    [environment, '', 6, /no JSON/],
    [environment, '{"a":1,}', 6, /no JSON.*byte 7/],
    [environment, '// x\n{}', 6, /no JSON/],
    [environment, '['.repeat(100_000), 6, /nesting is too deep/],
    [environment, `{"x":"${'y'.repeat(1_048_576)}"}`, 6, /longer than 1048576 bytes/],
    [environment, '"\\udc00"', 6, /half of a surrogate pair/],
    [environment, '[]', 7, /must be an object/],
    [environment, withConfig({ cniVersion: '0.2.0' }), 1, /0\.2\.0 is not supported/],
    [environment, withConfig({ cniVersion: '2.0.0' }), 1, /2\.0\.0 is not supported/],
    [environment, withConfig({ cniVersion: 1 }), 7, /cniVersion must be a string/],
    [environment, withConfig({ cniVersion: undefined }), 1, /0\.1\.0 is not supported/],
    [environment, withConfig({ cni_agent_run_dir: 'x' }), 7, /cni_agent_run_dir/],
    [environment, withConfig({ exclude_namespaces: [1] }), 7, /exclude_namespaces/],
    [environment, withConfig({ on_unknown: 'maybe' }), 7, /on_unknown must be deny or allow/],
    [environment, withConfig({ prevResult: 'x' }), 7, /prevResult must be an object/],
    [environment, withConfig({ prevResult: { cniVersion: '7' } }), 7, /prevResult.cniVersion/],
    [environment, withConfig({ prevResult: { ips: [{ address: 'x' }] } }), 7, /prevResult\.ips/],
    [{}, valid, 4, /CNI_COMMAND/],
    [{ ...environment, CNI_COMMAND: 'REMOVE' }, valid, 4, /CNI_COMMAND/],
    [without('CNI_NETNS'), valid, 4, /CNI_NETNS is not set/],
    [without('CNI_CONTAINERID'), valid, 4, /CNI_CONTAINERID is not set/],
    [without('CNI_IFNAME'), valid, 4, /CNI_IFNAME is not set/],
    [{ ...environment, CNI_ARGS: 'nonsense' }, valid, 4, /KEY=VALUE/],
    [{ ...environment, CNI_ARGS: 'K8S_POD_NAME=a' }, valid, 4, /both/],
    [
      { ...environment, CNI_ARGS: 'K8S_POD_NAME=../x;K8S_POD_NAMESPACE=y' },
      valid,
      4,
      /cannot exist/,
    ],
  ];
  for (const [variables, input, code, message] of cases) {
    const { code: end, answer } = await runPlugin(variables, input);
    t.is(end, 1, input.slice(0, 80));
    t.is(answer?.['code'], code, `${input.slice(0, 200)}: ${String(answer?.['msg'])}`);
    t.regex(String(answer?.['msg']), message);
    t.true(typeof answer?.['cniVersion'] === 'string');
  }
});

test('a path of a socket that is too long is an agent that cannot be reached', async (t) => {
  const dir = join(await runDir(t), 'x'.repeat(120));
  await mkdir(dir);
  t.regex(String((await add(dir, 'demo/web')).answer?.['msg']), /too long/);
});
