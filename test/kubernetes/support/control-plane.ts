/** A control plane that follows the test's API server. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ExecutionContext } from 'ava';
import { present } from '../../../lib/errors/assert.ts';
import { ControlPlaneActor } from '../../../services/control-plane/control-plane-actor.ts';
import { controlPlaneConfig } from '../../../services/control-plane/config.ts';
import { startActor } from '../../support/actor-context.ts';
import type { TestActor } from '../../support/actor-context.ts';
import { bareEnvironment } from '../../support/bare-environment.ts';
import { createCaKit } from '../../support/ca-kit.ts';
import type { CaKit } from '../../support/ca-kit.ts';
import type { DeltaTarget } from '../../support/delta-test-client.ts';
import { accountSubject } from '../../support/token-issuer.ts';
import { until } from '../../support/until.ts';
import type { Cluster } from './cluster.ts';
import type { Gateway } from './gateway.ts';
import { underRole } from './rbac.ts';

const WEFT = fileURLToPath(new URL('../../../services/cli/main.ts', import.meta.url));

/** Tests share the server. Each writes statuses in its own namespace, so that it sees its own writes. */
const roleIn = (namespace: string) => ({
  namespace,
  only: ['weft-control-plane-status-istio-system'],
});

/** A resource as the admin pages show it. */
export interface ShownResource {
  readonly name: string;
  /** Hash of the bytes. */
  readonly version: string;
  readonly content: Readonly<Record<string, unknown>>;
}

/** A control plane under test. */
export interface TestControlPlane {
  readonly ca: CaKit;
  readonly actor: ControlPlaneActor;
  readonly hosted: TestActor;
  /** Where streams go, with a token for the API server. */
  target(token: string): DeltaTarget;
  /** Waits until it serves. */
  ready(): Promise<void>;
  /** The workloads and services of a namespace, by name. */
  addresses(namespace: string): Promise<ShownResource[]>;
  /** Waits until `check` holds for the workloads and services of a namespace, and returns them. */
  addressesWhen(
    namespace: string,
    check: (addresses: readonly ShownResource[]) => boolean,
  ): Promise<ShownResource[]>;
  /** Answers of an admin page below `/control-plane`. */
  page(path: string): Promise<unknown>;
}

/** Where a control plane under test gets its objects and its certificate. */
export interface ControlPlaneOptions {
  readonly rootNamespace: string;
  /** The account of the control plane; without, one under its role, which writes only in the root namespace. */
  readonly token?: string;
  readonly via?: Gateway;
  readonly environment?: Readonly<Record<string, string>>;
  /** A CA that runs already. */
  readonly ca?: CaKit;
}

async function environmentOf(
  cluster: Cluster,
  ca: CaKit,
  { rootNamespace, via, ...options }: ControlPlaneOptions,
): Promise<Record<string, string>> {
  const token =
    options.token ?? (await underRole(cluster, 'weft-control-plane', roleIn(rootNamespace))).token;
  const stateDir = join(ca.dir, `control-${Math.random().toString(36).slice(2)}`);
  await mkdir(stateDir, { recursive: true });
  return {
    WEFT_SOURCE: 'kubernetes',
    KUBECONFIG: await cluster.kubeconfig({
      token,
      ...(via === undefined ? {} : { via }),
    }),
    WEFT_LISTEN: '127.0.0.1:0',
    WEFT_STATE_DIR: stateDir,
    POD_NAMESPACE: rootNamespace,
    PILOT_DEBOUNCE_AFTER: '20ms',
    CA_ADDRESS: ca.address(),
    CA_ROOT_CA: ca.bundlePath,
    AUTH_TOKEN: await ca.issuer.mint(accountSubject(rootNamespace, 'istiod')),
    ...options.environment,
  };
}

/** A control plane in a process of its own. */
export interface ControlPlaneProcess {
  readonly child: ChildProcess;
  /** True once a line with this event is in its log. */
  logged(event: string): boolean;
}

/** Starts one as {@link startControlPlane} does, as a process that a test can kill. */
export async function spawnControlPlane(
  t: ExecutionContext,
  cluster: Cluster,
  options: ControlPlaneOptions & { readonly ca: CaKit },
): Promise<ControlPlaneProcess> {
  const child = spawn(process.execPath, [WEFT, 'run', 'control-plane'], {
    env: bareEnvironment(await environmentOf(cluster, options.ca, options)),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  return { child, logged: (event) => output.includes(`"message":"${event}"`) };
}

/**
 * Starts one, with `rootNamespace` as the place of mesh-wide objects. Tests share the API server, so each takes a namespace of its
 * own as root. It need not be ready when this resolves.
 */
export async function startControlPlane(
  t: ExecutionContext,
  cluster: Cluster,
  options: ControlPlaneOptions,
): Promise<TestControlPlane> {
  const ca = options.ca ?? (await startCa(t, options.rootNamespace));
  const config = controlPlaneConfig.parse(await environmentOf(cluster, ca, options));
  const actor = new ControlPlaneActor(config);
  const hosted = await startActor(t, actor, 'control-plane');
  const page = (path: string): Promise<unknown> => ask(hosted, path);
  const addresses = (namespace: string): Promise<ShownResource[]> =>
    shownAddresses(hosted, namespace);
  return {
    ca,
    actor,
    hosted,
    page,
    addresses,
    target: (token) => ({
      address: `https://127.0.0.1:${actor.port ?? 0}`,
      rootCa: ca.bundlePath,
      token,
    }),
    async ready() {
      const { readiness } = hosted.context;
      await until(() => hosted.failures.length > 0 || readiness.pending().length === 0, {
        what: 'the control plane is ready',
      });
      if (hosted.failures.length > 0) throw new AggregateError(hosted.failures, 'it failed');
    },
    async addressesWhen(namespace, check) {
      let last: ShownResource[] = [];
      await until(
        async () => {
          last = await addresses(namespace);
          return check(last);
        },
        { what: `the addresses of ${namespace}` },
      );
      return last;
    },
  };
}

/** Starts a CA that gives the control plane of `rootNamespace` a certificate for 127.0.0.1. */
export async function startCa(t: ExecutionContext, rootNamespace: string): Promise<CaKit> {
  const ca = await createCaKit(t);
  await ca.start({ WEFT_CA_SERVING_NAMES: `${rootNamespace}/istiod=127.0.0.1,istiod.test` });
  return ca;
}

/** The workloads and services of a namespace that a control plane has, by name. */
export async function shownAddresses(
  hosted: TestActor,
  namespace: string,
): Promise<ShownResource[]> {
  const shown = (await ask(hosted, '/addresses')) as Readonly<Record<string, ShownResource[]>>;
  return Object.values(shown)
    .flat()
    .filter(({ content }) => content['namespace'] === namespace)
    .toSorted((left, right) => (left.name < right.name ? -1 : 1));
}

/** The policies of a namespace that a control plane has, by name. */
export async function shownPolicies(
  hosted: TestActor,
  namespace: string,
): Promise<ShownResource[]> {
  const { policies } = (await ask(hosted, '/policies')) as { policies: ShownResource[] };
  return policies
    .filter(({ name }) => name.startsWith(`${namespace}/`))
    .toSorted((left, right) => (left.name < right.name ? -1 : 1));
}

/** Calls a handler of the actor's admin pages. */
async function ask(hosted: TestActor, path: string): Promise<unknown> {
  const handler = present(hosted.routes.get(`GET ${path}`), `there is a page ${path}`);
  const body = new PassThrough();
  const response = Object.assign(body, { writeHead: () => response });
  const chunks: Buffer[] = [];
  const read = async (): Promise<void> => {
    for await (const chunk of body as AsyncIterable<Buffer>) chunks.push(chunk);
  };
  // A long page is written at the pace of its reader.
  await Promise.all([
    handler(
      {} as IncomingMessage,
      response as unknown as ServerResponse,
      new URL(`http://localhost${path}`),
    ),
    read(),
  ]);
  return JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown;
}
