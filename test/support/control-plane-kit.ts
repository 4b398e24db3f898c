/** A real control plane with a real CA, and clients for its two sides. */
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { request as httpRequest } from '../../lib/http/node-http.ts';
import { parseManifestText } from '../../lib/kube/manifest-text.ts';
import { ControlPlaneActor } from '../../services/control-plane/control-plane-actor.ts';
import { controlPlaneConfig } from '../../services/control-plane/config.ts';
import { startActor } from './actor-context.ts';
import type { TestActor } from './actor-context.ts';
import { createCaKit } from './ca-kit.ts';
import type { CaKit } from './ca-kit.ts';
import type { DeltaTarget } from './delta-test-client.ts';
import { ownPort } from './ports.ts';
import { accountSubject, nodeSubject } from './token-issuer.ts';
import { until } from './until.ts';

/** An answer of the manifest API. */
export interface ApiAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** Talks to a manifest API. */
export class ApiClient {
  readonly socketPath: string;

  constructor(socketPath: string) {
    this.socketPath = socketPath;
  }

  /** Sends JSON, or text as it is. */
  async send(method: string, path: string, body?: unknown): Promise<ApiAnswer> {
    const text = typeof body === 'string' ? body : body === undefined ? '' : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const outgoing = httpRequest(
        {
          socketPath: this.socketPath,
          method,
          path,
          headers: { 'content-type': 'application/json' },
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('error', reject);
          response.on('end', () => {
            const answer = Buffer.concat(chunks).toString('utf8');
            resolve({ status: response.statusCode ?? 0, body: JSON.parse(answer) as unknown });
          });
        },
      );
      outgoing.on('error', reject);
      outgoing.end(text);
    });
  }

  /** Applies or deletes YAML. */
  async manifests(operation: 'apply' | 'delete', text: string): Promise<ApiAnswer> {
    const { documents, problems } = parseManifestText('test.yaml', text);
    if (problems.length > 0) throw new Error(problems[0]?.reason);
    return this.send('POST', `/${operation}`, { documents });
  }

  /** Applies YAML that must be accepted. */
  async apply(text: string): Promise<void> {
    const answer = await this.manifests('apply', text);
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
  }

  /** The objects of a kind. */
  async objects(kind: string): Promise<KubeLike[]> {
    const { body } = await this.send('GET', `/objects?kind=${kind}`);
    return (body as { items: KubeLike[] }).items;
  }

  /** One object; throws when it is missing. */
  async object(kind: string, name: string): Promise<KubeLike> {
    const found = (await this.objects(kind)).find((object) => object.metadata.name === name);
    if (found === undefined) throw new Error(`no ${kind} ${name}`);
    return found;
  }

  /** Reports a pod as running with these addresses. */
  async run(namespace: string, name: string, ips: readonly string[], ready = true): Promise<void> {
    const pods = await this.objects('Pod');
    const pod = pods.find(
      ({ metadata }) => metadata.namespace === namespace && metadata.name === name,
    );
    const answer = await this.send('PUT', `/pods/${namespace}/${name}/status`, {
      podIPs: ips,
      phase: 'Running',
      ready,
      uid: pod?.metadata.uid,
    });
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
  }
}

/** Objects as tests look at them. */
export interface KubeLike {
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly generation?: number;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec: Readonly<Record<string, unknown>>;
  readonly status?: Readonly<Record<string, unknown>>;
}

/** See {@link createControlPlaneKit}. */
export interface ControlPlaneKit {
  readonly ca: CaKit;
  readonly api: ApiClient;
  /** Starts the control plane; on the port it had before, if any. Ready when this resolves. */
  start(environment?: Readonly<Record<string, string>>): Promise<TestActor>;
  /** Environment of the actor, for a process of its own. */
  environment(): Promise<Record<string, string>>;
  /** Where streams go, as a node's account or with another token. */
  target(token?: string | null): Promise<DeltaTarget>;
}

/** A CA that runs, and a control plane that a test starts. */
export async function createControlPlaneKit(t: ExecutionContext): Promise<ControlPlaneKit> {
  const ca = await createCaKit(t);
  await ca.start({ WEFT_CA_SERVING_NAMES: 'istio-system/istiod=127.0.0.1,istiod.test' });
  const socket = join(ca.dir, 'control', 'api.sock');
  const port = await ownPort();
  const kit: ControlPlaneKit = {
    ca,
    api: new ApiClient(socket),
    async environment() {
      return {
        WEFT_LISTEN: `127.0.0.1:${port}`,
        WEFT_STATE_DIR: join(ca.dir, 'control'),
        WEFT_CONTROL_PLANE_API_SOCKET: socket,
        PILOT_DEBOUNCE_AFTER: '20ms',
        CA_ADDRESS: ca.address(),
        CA_ROOT_CA: ca.bundlePath,
        AUTH_TOKEN: await ca.issuer.mint(accountSubject('istio-system', 'istiod')),
        WEFT_TOKEN_JWKS_PATH: join(ca.dir, 'jwks.json'),
        TOKEN_ISSUER: ca.issuer.issuer,
      };
    },
    async start(environment = {}) {
      const config = controlPlaneConfig.parse({ ...(await kit.environment()), ...environment });
      const actor = new ControlPlaneActor(config);
      const started = await startActor(t, actor, 'control-plane');
      const { readiness } = started.context;
      await until(() => readiness.pending().length === 0 || started.failures.length > 0, {
        what: 'readiness',
      });
      if (started.failures.length > 0) throw started.failures[0];
      return started;
    },
    async target(token) {
      return {
        address: `https://127.0.0.1:${port}`,
        rootCa: ca.bundlePath,
        token: token === undefined ? await ca.issuer.mint(nodeSubject('node-1')) : token,
      };
    },
  };
  return kit;
}
