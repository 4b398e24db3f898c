/** The agent's side of the CNI plugin: its installation, the socket that it asks, and its removal with the agent. */
import { access } from 'node:fs/promises';
import type { ActorContext } from '../../../lib/actor/actor.ts';
import { present } from '../../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { installedPath } from '../../../lib/files/installation.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { findConnection } from '../../../lib/kubernetes/connection.ts';
import type { KubernetesConnection } from '../../../lib/kubernetes/connection.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { EligibilityRules } from '../eligibility.ts';
import type { NodeEnrolments } from '../node-enrolments.ts';
import type { NodeFacts } from '../proof/findings.ts';
import type { PodSource } from '../pod-source.ts';
import { AddServer } from './add-server.ts';
import { pluginEntry } from './config.ts';
import type { CniConfig } from './config.ts';
import { HELPER_ACCOUNT, HelperToken } from './helper-token.ts';
import type { HelperPlace } from './helper-token.ts';
import { Installer } from './installer.ts';
import { kubeconfigText } from './kubeconfig.ts';

const PROGRAM = installedPath('services/node-agent/cni/plugin/build/weft-cni');

/** The dependencies of a {@link Cni}. */
export interface CniParts {
  readonly context: ActorContext;
  readonly source: Pick<PodSource, 'find' | 'place'>;
  readonly pods: Pick<NodeEnrolments, 'outcome' | 'holderOf'>;
  readonly rules: EligibilityRules;
}

/** The API server that the plugin's helper asks, and whose token it shows. */
interface HelperServer {
  readonly connection: KubernetesConnection;
  readonly place: HelperPlace;
}

/** Installs and serves from {@link Cni.open} until {@link Cni.close}. */
export class Cni {
  readonly #installer: Installer;
  readonly #server: AddServer;
  readonly #made = new AsyncDisposableStack();
  readonly #log: Logger;
  /** Null where there is no Kubernetes. */
  readonly #token: HelperToken | null;
  /** When the plugin was found installed, by the wall clock; null while it is not. */
  #installedAtMs: number | null = null;
  /** Releases the block of readiness; null while the installation is complete. */
  #release: (() => void) | null;

  private constructor(config: CniConfig, parts: CniParts, helper: HelperServer | null) {
    const { context, source, pods, rules } = parts;
    const { clock, log, metrics, readiness } = context;
    this.#log = log;
    this.#release = readiness.block('cni-install');
    const installs = metrics.counter(
      'istio_cni_installs_total',
      'Installations and repairs of the CNI plugin',
      ['result'],
    );
    metrics.gauge(
      'istio_cni_install_ready',
      '1 while the CNI plugin is installed and the runtime loads it',
      [],
      (gauge) => gauge.set(this.#installer.ready ? 1 : 0),
    );
    const requests = metrics.counter(
      'istio_cni_plugin_requests_total',
      'Pods that the CNI plugin asked about',
      ['response_code'],
    );
    const token = helper === null ? null : this.#openToken(helper, context);
    this.#token = token;
    this.#installer = new Installer(
      {
        ...config,
        program: PROGRAM,
        entry: pluginEntry(config, rules),
        kubeconfig:
          helper === null || token === null
            ? null
            : async () => kubeconfigText(helper.connection, token.read()),
      },
      {
        clock,
        log,
        onResult: (result) => installs.inc({ result }),
        onReady: (ready) => {
          this.#release?.();
          this.#installedAtMs = ready ? clock.now() : null;
          this.#release = ready ? null : readiness.block('cni-install');
        },
      },
    );
    this.#server = new AddServer({
      ...config,
      rules,
      source,
      pods,
      clock,
      log,
      onAnswer: (status) => requests.inc({ response_code: String(status) }),
    });
  }

  /** Serves the plugin, then installs it. Throws CONFIG_UNSUPPORTED when the plugin was not built. */
  static async open(config: CniConfig, parts: CniParts): Promise<Cni> {
    await access(PROGRAM).catch((error: unknown) => {
      throw new MeshError(
        'CONFIG_UNSUPPORTED',
        `the CNI plugin ${PROGRAM} is not built: run sh infra/setup.sh`,
        { cause: error },
      );
    });
    const cni = new Cni(config, parts, await helperServer(config, parts.context));
    await cni.#server.listen();
    await cni.#token?.start();
    await cni.#installer.start();
    return cni;
  }

  #openToken({ connection, place }: HelperServer, context: ActorContext): HelperToken {
    const { clock, log } = context;
    const client = new KubernetesClient(connection, { clock, userAgent: 'weft-node-agent' });
    this.#made.defer(() => client.close());
    const token = new HelperToken(place, {
      client,
      clock,
      log,
      onRenewed: () => this.#installer.check(),
      supervise: (work) => context.supervise("token of the plugin's helper", work),
    });
    this.#made.defer(() => token.close());
    return token;
  }

  /** The facts about the installation that a proof tells. */
  get facts(): Omit<NonNullable<NodeFacts['cni']>, 'uncalled'> {
    const { failed, conflict } = this.#installer;
    const withoutHelper = failed?.result === 'CREATE_KUBECONFIG_FAILURE';
    return {
      problem: withoutHelper ? null : (failed?.problem ?? null),
      // A token that is still in force may not be renewed any more.
      helper: withoutHelper ? failed.problem : (this.#token?.problem ?? null),
      conflict,
    };
  }

  /** When the plugin was found installed, by the wall clock; null while it is not. */
  get installedAtMs(): number | null {
    return this.#installedAtMs;
  }

  /** Removes the plugin, because the agent leaves the node for good. Logs a failure: the pods must leave the mesh all the same. */
  async remove(): Promise<void> {
    try {
      await this.#made.disposeAsync();
      await this.#installer.close();
      await this.#installer.remove();
    } catch (error) {
      this.#log.error({ problem: errorText(error) }, 'cni.not-removed');
    }
  }

  /** Stops; the plugin stays on the node. */
  async close(): Promise<void> {
    await this.#made.disposeAsync();
    await this.#installer.close();
    await this.#server.close();
  }
}

async function helperServer(
  config: CniConfig,
  context: ActorContext,
): Promise<HelperServer | null> {
  const { kubeconfig, serviceHost } = config.connection;
  if (kubeconfig === null && serviceHost === null) return null;
  const connection = await findConnection(config.connection);
  const namespace = config.namespace ?? connection.namespace;
  if (namespace === null) {
    throw new MeshError(
      'CONFIG_INVALID',
      `POD_NAMESPACE is required: it has the account ${HELPER_ACCOUNT} of the CNI plugin's helper`,
    );
  }
  const node = present(context.node, 'the host gives a node actor its node');
  return { connection, place: { namespace, node } };
}
