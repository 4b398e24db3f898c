/** An unmodified istio-cni: its programs, and its agent on a node of a test. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { processEnvironment } from '../../../lib/config/env.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import { listenTcp } from '../../../lib/linux/sockets.ts';
import type { ApiServer } from '../../kubernetes/support/api-server.ts';
import { buildGoProgram } from '../../support/go-program.ts';
import type { TestNetns } from '../../support/netns-kit.ts';

/** A cold build compiles most of Istio: nine minutes of one core. */
const BUILD_TIMEOUT_MS = 900_000;
/** The module that pins it. */
export const ISTIO_CNI_FOLDER = new URL('../istio-cni/', import.meta.url).pathname;
const PACKAGE = 'istio.io/istio/cni/cmd';
/** The API server's port on the node. */
const API_PORT = 6_443;
const LOGGED_CHARACTERS = 4_000;

/** The chart's default. */
const SELECTORS = `
- podSelector: { matchLabels: { istio.io/dataplane-mode: ambient } }
- podSelector: { matchExpressions: [{ key: istio.io/dataplane-mode, operator: NotIn, values: [none] }] }
  namespaceSelector: { matchLabels: { istio.io/dataplane-mode: ambient } }
`;

/**
 * Gives the agent a tree of its own above the machine's, because the paths of programs and of its token are fixed. Of what is
 * written elsewhere it sees new network namespaces and the folders of the test. It is the first process, which it must inspect.
 */
const ENTER = `
root=$DIR/tree/root
mkdir -p "$DIR/tree/upper" "$DIR/tree/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$DIR/tree/upper,workdir=$DIR/tree/work" tree "$root"
mkdir -p "$root/host/run/netns" "$root/host/proc" "$root/host/opt/cni/bin" "$root/opt/cni/bin" "$root$DIR"
for path in /dev /sys; do mount --rbind "$path" "$root$path"; done
mount --rbind /run/netns "$root/host/run/netns"
for path in /proc /host/proc; do mount -t proc proc "$root$path"; done
mount --bind "$DIR" "$root$DIR"
mount --bind "$BIN" "$root/host/opt/cni/bin"
for name in opt/cni/bin/istio-cni install-cni; do : >"$root/$name"; done
mount --bind "$ISTIO_CNI" "$root/opt/cni/bin/istio-cni"
mount --bind "$INSTALL_CNI" "$root/install-cni"
secrets=$root/run/secrets/kubernetes.io/serviceaccount
mkdir -p "$secrets"
cp "$DIR/token" "$DIR/ca.crt" "$secrets"
exec chroot "$root" /install-cni
`;

/** Paths of its programs. */
export interface IstioCniPrograms {
  readonly installCni: string;
  readonly istioCni: string;
}

/** Builds what is not built yet. `missing` says why there is nothing to test with. */
export async function istioCniPrograms(): Promise<IstioCniPrograms | { readonly missing: string }> {
  const installCni = await program('install-cni');
  if ('missing' in installCni) return installCni;
  const istioCni = await program('istio-cni');
  return 'missing' in istioCni
    ? istioCni
    : { installCni: installCni.path, istioCni: istioCni.path };
}

/** Builds a program of istio-cni; static, because the plugin runs in the node's own tree. */
function program(name: string): ReturnType<typeof buildGoProgram> {
  return buildGoProgram({
    name,
    folder: ISTIO_CNI_FOLDER,
    package: `${PACKAGE}/${name}`,
    cache: 'interop',
    ldflags: '-s -w',
    linked: 'static',
    timeoutMs: BUILD_TIMEOUT_MS,
  });
}

/** The folders of a node, and the sockets in them. */
export interface IstioCniNode {
  readonly name: string;
  readonly netns: TestNetns;
  /** Holds `net.d` with the primary's configuration, and what the agent writes. */
  readonly dir: string;
  /** The folder of plugins. */
  readonly bin: string;
  /** The socket for proxies. */
  readonly zds: string;
}

/** Starts the agent, which installs the plugin, and ends with the namespace. Returns a reader of its words, which a failed test logs. */
export async function startIstioCni(
  t: ExecutionContext,
  node: IstioCniNode,
  { programs, server }: { readonly programs: IstioCniPrograms; readonly server: ApiServer },
): Promise<() => string> {
  const { dir, netns } = node;
  await mkdir(join(dir, 'run'), { recursive: true });
  await writeFile(join(dir, 'token'), server.adminToken);
  await writeFile(join(dir, 'ca.crt'), server.caPem);
  await reach(t, netns, new URL(server.url));
  const own = ['--mount', '--propagation', 'slave', '--pid', '--fork', '--kill-child=KILL'];
  const child = netns.spawn('unshare', [...own, 'sh', '-ec', ENTER], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: processEnvironment()['PATH'],
      DIR: dir,
      BIN: node.bin,
      INSTALL_CNI: programs.installCni,
      ISTIO_CNI: programs.istioCni,
      AMBIENT_ENABLED: 'true',
      AMBIENT_ENABLEMENT_SELECTOR: SELECTORS,
      AMBIENT_IPV6: 'true',
      AMBIENT_DNS_CAPTURE: 'false',
      CHAINED_CNI_PLUGIN: 'true',
      MOUNTED_CNI_NET_DIR: join(dir, 'net.d'),
      CNI_AGENT_RUN_DIR: join(dir, 'run'),
      ZTUNNEL_UDS_ADDRESS: node.zds,
      EXCLUDE_NAMESPACES: 'kube-system',
      REPAIR_ENABLED: 'false',
      POD_NAMESPACE: 'istio-system',
      POD_NAME: `istio-cni-${node.name}`,
      NODE_NAME: node.name,
      KUBERNETES_NODE_NAME: node.name,
      KUBERNETES_SERVICE_HOST: '127.0.0.1',
      KUBERNETES_SERVICE_PORT: String(API_PORT),
    },
  });
  let words = '';
  for (const output of [child.stdout, child.stderr]) {
    output?.on('data', (chunk: Buffer) => (words += chunk.toString()));
  }
  t.teardown(() => {
    if (!t.passed) t.log(words.slice(-LOGGED_CHARACTERS));
  });
  return () => words;
}

/** Makes the API server answer on the node's loopback. */
async function reach(t: ExecutionContext, netns: TestNetns, api: URL): Promise<void> {
  const handle = NetnsHandle.open(netns.path);
  const { fd } = listenTcp({
    netnsFd: handle.fd,
    address: '127.0.0.1',
    port: API_PORT,
    mark: 0,
    reusePort: false,
    transparent: 'off',
  });
  handle.release();
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(Number(api.port), api.hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.pipe(upstream).pipe(client);
  });
  server.listen({ fd });
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
}
