/** A real CA on a real port, with tokens, pods and folders of its own. */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CaClient, MAX_ANSWER_BYTES } from '../../lib/identity/ca-client.ts';
import { CaActor } from '../../services/ca/ca-actor.ts';
import { caConfig } from '../../services/ca/config.ts';
import type { CaConfig } from '../../services/ca/config.ts';
import { startActor } from './actor-context.ts';
import type { TeardownOwner, TestActor } from './actor-context.ts';
import { nodePod, podObject, servePodsApi } from './pods-api.ts';
import type { PodsApi } from './pods-api.ts';
import { createTokenIssuer, nodeSubject } from './token-issuer.ts';
import type { TestTokenIssuer } from './token-issuer.ts';
import { makeScratch } from './leftovers.ts';
import { ownPort } from './ports.ts';

/** The pods of the default mesh. */
export const DEFAULT_PODS = [
  podObject('demo', 'client', { node: 'node-1', account: 'client' }),
  podObject('demo', 'web-1', { node: 'node-1', account: 'web' }),
  podObject('demo', 'api-1', { node: 'node-2', account: 'api' }),
];

/** The proxies of the nodes, whose tokens {@link CaKit.nodeToken} gives. */
const NODE_PODS = ['node-1', 'node-2', 'node-3'].map(nodePod);

/** The parts that a test uses. */
export interface CaKit {
  readonly dir: string;
  readonly bundlePath: string;
  readonly issuer: TestTokenIssuer;
  readonly podsSocket: string;
  pods: PodsApi | null;
  /** The environment in which the CA is started. */
  readonly environment: Readonly<Record<string, string>>;
  /** Starts the CA; on the port it had before, if any. */
  start(
    environment?: Readonly<Record<string, string>>,
    changes?: Partial<CaConfig>,
  ): Promise<TestActor>;
  /** Address of the CA started last. */
  address(): string;
  /** A client that presents this token, or a node's. */
  client(token?: string): Promise<CaClient>;
  /** A token file for a node; its path. */
  nodeToken(node: string): Promise<string>;
}

/** A folder, an issuer and a pods API, which has the proxies of the nodes, too; the CA itself is started by the test. */
export async function createCaKit(
  t: TeardownOwner,
  options: { readonly pods?: readonly unknown[] | null } = {},
): Promise<CaKit> {
  const dir = await makeScratch('ca');
  const issuer = createTokenIssuer();
  const jwksPath = join(dir, 'jwks.json');
  await issuer.publish(jwksPath);
  const podsSocket = join(dir, 'api.sock');
  const bundlePath = join(dir, 'roots', 'root-cert.pem');
  const port = await ownPort();
  let count = 0;
  const kit: CaKit = {
    dir,
    bundlePath,
    issuer,
    podsSocket,
    pods:
      options.pods === null
        ? null
        : await servePodsApi(podsSocket, [...NODE_PODS, ...(options.pods ?? DEFAULT_PODS)]),
    environment: {
      WEFT_LISTEN: `127.0.0.1:${port}`,
      WEFT_STATE_DIR: join(dir, 'state'),
      WEFT_CA_ROOT_BUNDLE_FILE: bundlePath,
      WEFT_PODS_SOCKET: podsSocket,
      ISTIOD_CUSTOM_HOST: '127.0.0.1,ca.test',
      WEFT_TOKEN_JWKS_PATH: jwksPath,
      TOKEN_ISSUER: issuer.issuer,
    },
    async start(environment = {}, changes = {}) {
      const config = { ...caConfig.parse({ ...kit.environment, ...environment }), ...changes };
      return startActor(t, new CaActor(config), 'ca');
    },
    address: () => `https://127.0.0.1:${port}`,
    async client(token) {
      const client = new CaClient({
        address: kit.address(),
        rootCa: bundlePath,
        altHostname: null,
        authToken: token ?? (await issuer.mint(nodeSubject('node-1'))),
        clusterId: 'Kubernetes',
        headers: {},
        maxReceiveBytes: MAX_ANSWER_BYTES,
      });
      t.teardown(() => client.close());
      return client;
    },
    async nodeToken(node) {
      count += 1;
      const path = join(dir, `token-${node}-${count}`);
      await writeFile(path, await issuer.mint(nodeSubject(node)));
      return path;
    },
  };
  t.teardown(async () => {
    await kit.pods?.close();
    await rm(dir, { recursive: true, force: true });
  });
  return kit;
}
