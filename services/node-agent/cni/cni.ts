/** The agent's side of the CNI plugin: its installation, the socket that it asks, and its removal with the agent. */
import { access } from 'node:fs/promises';
import type { ActorContext } from '../../../lib/actor/actor.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { findConnection } from '../../../lib/kubernetes/connection.ts';
import type { KubernetesConnection } from '../../../lib/kubernetes/connection.ts';
import type { EligibilityRules } from '../eligibility.ts';
import type { NodeEnrolments } from '../node-enrolments.ts';
import type { NodeFacts } from '../proof/findings.ts';
import type { PodSource } from '../pod-source.ts';
import { AddServer } from './add-server.ts';
import { pluginEntry } from './config.ts';
import type { CniConfig } from './config.ts';
import { Installer } from './installer.ts';

const PROGRAM = new URL('plugin/build/weft-cni', import.meta.url).pathname;

/** The dependencies of a {@link Cni}. */
export interface CniParts {
  readonly context: ActorContext;
  readonly source: Pick<PodSource, 'find' | 'place'>;
  readonly pods: Pick<NodeEnrolments, 'outcome'>;
  readonly rules: EligibilityRules;
}

/** Installs and serves from {@link Cni.open} until {@link Cni.close}. */
export class Cni {
  readonly #installer: Installer;
  readonly #server: AddServer;
  /** When the plugin was found installed, by the wall clock; null while it is not. */
  #installedAtMs: number | null = null;
  /** Releases the block of readiness; null while the installation is complete. */
  #release: (() => void) | null;

  private constructor(config: CniConfig, parts: CniParts, connection: KubernetesConnection | null) {
    const { context, source, pods, rules } = parts;
    const { clock, log, metrics, readiness } = context;
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
    this.#installer = new Installer(
      { ...config, program: PROGRAM, entry: pluginEntry(config, rules), connection },
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
    const { kubeconfig, serviceHost } = config.connection;
    const inCluster = kubeconfig !== null || serviceHost !== null;
    const cni = new Cni(config, parts, inCluster ? await findConnection(config.connection) : null);
    await cni.#server.listen();
    await cni.#installer.start();
    return cni;
  }

  /** The facts about the installation that a proof tells. */
  get facts(): Omit<NonNullable<NodeFacts['cni']>, 'uncalled'> {
    const { problem, conflict } = this.#installer;
    return { problem, conflict };
  }

  /** When the plugin was found installed, by the wall clock; null while it is not. */
  get installedAtMs(): number | null {
    return this.#installedAtMs;
  }

  /** Removes the plugin, because the agent leaves the node for good. Rejects with the file system's error. */
  async remove(): Promise<void> {
    await this.#installer.close();
    await this.#installer.remove();
  }

  /** Stops; the plugin stays on the node. */
  async close(): Promise<void> {
    await this.#installer.close();
    await this.#server.close();
  }
}
