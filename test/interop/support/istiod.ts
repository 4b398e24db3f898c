/** Runs an unmodified istiod on a real API server. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { adminClient } from '../../kubernetes/support/definitions.ts';
import type { ApiServer } from '../../kubernetes/support/api-server.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { ownPort } from '../../support/ports.ts';
import { until } from '../../support/until.ts';

/** The namespace of istiod, and of the account that reads the mesh. */
export const ROOT_NAMESPACE = 'istio-system';

/** A name in istiod's own certificate; the tests call it by its address. */
export const ISTIOD_NAME = 'istiod.istio-system.svc';

/** How upstream builds the program. */
export const ISTIOD_TAGS = 'vtprotobuf,disable_pgv';

/** Features that tests use; all others are as upstream has them. */
const FEATURES = {
  PILOT_ENABLE_AMBIENT: 'true',
  CA_TRUSTED_NODE_ACCOUNTS: `${ROOT_NAMESPACE}/ztunnel`,
  // There is one replica, and nothing to inject into or to validate.
  ENABLE_LEADER_ELECTION: 'false',
  INJECTION_WEBHOOK_CONFIG_NAME: '',
  VALIDATION_WEBHOOK_CONFIG_NAME: '',
};

type Options = Readonly<Record<string, string>>;

/** An istiod. */
export class Istiod {
  /** URL of delta ADS and the CA. */
  readonly address: string;
  /** File with the roots of its CA. */
  readonly rootPath: string;
  readonly #server: ApiServer;
  readonly #spawn: (options: Options) => ChildProcess;
  readonly #readyUrl: string;
  #child: ChildProcess | null = null;
  /** Settings beside {@link FEATURES}. */
  #options: Options = {};

  private constructor(
    server: ApiServer,
    parts: Pick<Istiod, 'address' | 'rootPath'> & {
      spawn: (options: Options) => ChildProcess;
      readyUrl: string;
    },
  ) {
    this.#server = server;
    this.address = parts.address;
    this.rootPath = parts.rootPath;
    this.#spawn = parts.spawn;
    this.#readyUrl = parts.readyUrl;
  }

  /** Makes one; it does not run yet. Its MeshConfig is that of ConfigMap `istio`. */
  static async create(program: string, server: ApiServer): Promise<Istiod> {
    const directory = await makeScratch('istiod');
    const path = (name: string): string => join(directory, name);
    const [port, http, monitoring] = [await ownPort(), await ownPort(), await ownPort()];
    await writeFile(path('kubeconfig'), kubeconfig(server));
    const args = [
      'discovery',
      `--kubeconfig=${path('kubeconfig')}`,
      `--meshConfig=${path('none')}`,
      `--secureGRPCAddr=127.0.0.1:${port}`,
      `--httpAddr=127.0.0.1:${http}`,
      `--monitoringAddr=127.0.0.1:${monitoring}`,
      '--grpcAddr=',
      '--httpsAddr=',
      '--ctrlz_port=0',
    ];
    const env = {
      ...FEATURES,
      POD_NAME: 'istiod-0',
      POD_NAMESPACE: ROOT_NAMESPACE,
      HOME: directory,
    };
    const command = ['--pdeathsig', 'KILL', program, ...args];
    return new Istiod(server, {
      address: `https://127.0.0.1:${port}`,
      rootPath: path('root-cert.pem'),
      spawn: (options) =>
        spawn('/usr/bin/setpriv', command, {
          cwd: directory,
          env: { ...env, ...options },
          stdio: 'ignore',
        }),
      readyUrl: `http://127.0.0.1:${http}/ready`,
    });
  }

  /** Its process. */
  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Starts it; resolves when it serves. */
  async start(): Promise<void> {
    const child = this.#spawn(this.#options);
    this.#child = child;
    const ready = async (): Promise<boolean> => {
      if (child.exitCode !== null) throw new Error(`istiod ended with ${child.exitCode}`);
      return (await fetch(this.#readyUrl)).ok;
    };
    await until(ready, { what: 'istiod to be ready' });
    const client = adminClient(this.#server);
    try {
      const config = await until(
        async () => {
          const path = `/api/v1/namespaces/${ROOT_NAMESPACE}/configmaps/istio-ca-root-cert`;
          return (await client.get(path)) as { readonly data: Readonly<Record<string, string>> };
        },
        { what: 'its roots' },
      );
      await writeFile(this.rootPath, config.data['root-cert.pem'] ?? '');
    } finally {
      client.close();
    }
  }

  /** Starts it again with other settings, if it does not have them. */
  async use(options: Options): Promise<void> {
    if (isDeepStrictEqual(options, this.#options)) return;
    await this.kill();
    this.#options = options;
    await this.start();
  }

  /** Sends SIGKILL. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child === null || child.exitCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
}

function kubeconfig(server: ApiServer): string {
  const ca = Buffer.from(server.caPem).toString('base64');
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'test',
    clusters: [{ name: 'test', cluster: { server: server.url, 'certificate-authority-data': ca } }],
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
    users: [{ name: 'test', user: { token: server.adminToken } }],
  });
}
