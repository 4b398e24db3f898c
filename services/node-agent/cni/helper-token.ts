/** Keeps the token with which the plugin's helper reads pods. It is no token of the agent's pod, because it must outlive that pod. */
import * as z from 'zod';
import { Backoff } from '../../../lib/clock/backoff.ts';
import { pause } from '../../../lib/clock/clock.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { SERVICE_ACCOUNTS } from '../../../lib/kubernetes/resources.ts';
import { isCode } from '../../../lib/kubernetes/status.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { HELPER_TOKEN_LIFE_S, HELPER_TOKEN_RENEWAL_MS, HELPER_TOKEN_RETRY } from './limits.ts';

/** The helper's account (infra/helm/weft/templates/node-agent-rbac.yaml). */
export const HELPER_ACCOUNT = 'weft-cni';

/** The account and the node of a token. */
export interface HelperPlace {
  /** The namespace of {@link HELPER_ACCOUNT}. */
  readonly namespace: string;
  /** The node that the token ends with. */
  readonly node: string;
}

/** Ports of a {@link HelperToken}. */
export interface HelperTokenDeps {
  /** A client with the agent's rights. */
  readonly client: Pick<KubernetesClient, 'request'>;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'warn' | 'error'>;
  /** Called after every renewal. */
  readonly onRenewed: () => void;
  readonly supervise: (work: Promise<void>) => void;
}

/** The part of a TokenRequest's answer that is read. The life is the one that the API server gave, which may be shorter. */
const answerSchema = z.looseObject({
  spec: z.looseObject({ expirationSeconds: z.number().positive() }),
  status: z.looseObject({ token: z.string().min(1) }),
});

/**
 * Asks the API server for a token, and for another one long before it ends. A token in use stays when that fails. The owner closes
 * it.
 */
export class HelperToken {
  readonly #place: HelperPlace;
  readonly #deps: HelperTokenDeps;
  readonly #closing = new AbortController();
  readonly #backoff = new Backoff(HELPER_TOKEN_RETRY);
  #token: { readonly text: string; readonly endMs: number } | null = null;
  #problem: string | null = null;
  #bindsToNode = true;
  #finished: Promise<void> = Promise.resolve();

  constructor(place: HelperPlace, deps: HelperTokenDeps) {
    this.#place = place;
    this.#deps = deps;
  }

  /** Resolves after the first attempt; others follow until {@link close}. */
  async start(): Promise<void> {
    this.#finished = this.#keep(await this.#renew());
    this.#deps.supervise(this.#finished);
  }

  /** Why the last attempt failed; null when it did not. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Returns the token. Throws KUBERNETES_REFUSED that tells why there is none. */
  read(): string {
    const { clock } = this.#deps;
    if (this.#token !== null && clock.monotonic() < this.#token.endMs) return this.#token.text;
    throw new MeshError('KUBERNETES_REFUSED', this.#problem ?? 'no token was asked for yet');
  }

  /** Asks no more. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#finished;
  }

  async #keep(firstMs: number): Promise<void> {
    const { signal } = this.#closing;
    for (let delayMs = firstMs; ; delayMs = await this.#renew()) {
      await pause(this.#deps.clock, delayMs, signal);
      if (signal.aborted) return;
    }
  }

  /** Returns the time until the next attempt. */
  async #renew(): Promise<number> {
    const { clock, onRenewed } = this.#deps;
    const askedMs = clock.monotonic();
    try {
      const { spec, status } = parseAnswer(await this.#ask());
      const lifeMs = spec.expirationSeconds * 1_000;
      this.#token = { text: status.token, endMs: askedMs + lifeMs };
      this.#problem = null;
      this.#backoff.reset();
      onRenewed();
      return Math.min(HELPER_TOKEN_RENEWAL_MS, lifeMs / 2);
    } catch (error) {
      if (!this.#closing.signal.aborted) this.#report(errorText(error));
      return this.#backoff.next();
    }
  }

  async #ask(): Promise<unknown> {
    if (!this.#bindsToNode) return this.#request({});
    const boundObjectRef = { apiVersion: 'v1', kind: 'Node', name: this.#place.node };
    try {
      return await this.#request({ boundObjectRef });
    } catch (error) {
      // API servers before 1.31 refuse that as a bad request.
      if (!isCode(error, 'KUBERNETES_INVALID')) throw error;
      const answer = await this.#request({});
      this.#bindsToNode = false;
      this.#deps.log.warn({ problem: errorText(error) }, 'cni.token-not-bound');
      return answer;
    }
  }

  #request(binding: Readonly<Record<string, unknown>>): Promise<unknown> {
    const { namespace } = this.#place;
    return this.#deps.client.request({
      method: 'POST',
      path: resourcePath(SERVICE_ACCOUNTS, {
        namespace,
        name: HELPER_ACCOUNT,
        subresource: 'token',
      }),
      body: {
        apiVersion: 'authentication.k8s.io/v1',
        kind: 'TokenRequest',
        spec: { expirationSeconds: HELPER_TOKEN_LIFE_S, ...binding },
      },
      signal: this.#closing.signal,
      // The loop tries again.
      attempts: 1,
    });
  }

  #report(text: string): void {
    // The API server quotes the account when it does not exist, or the agent may not ask for its token.
    const chart = text.includes(`serviceaccounts "${HELPER_ACCOUNT}"`)
      ? '; account and right come with the chart of this version'
      : '';
    const problem = `no new token for the CNI plugin's helper: ${text}${chart}`;
    if (problem === this.#problem) return;
    this.#problem = problem;
    const { clock, log } = this.#deps;
    const leftMs = Math.max(0, (this.#token?.endMs ?? 0) - clock.monotonic());
    log.error({ problem, leftMs: Math.round(leftMs) }, 'cni.token-not-renewed');
  }
}

function parseAnswer(answer: unknown): z.infer<typeof answerSchema> {
  const parsed = answerSchema.safeParse(answer);
  if (parsed.success) return parsed.data;
  const why = z.prettifyError(parsed.error);
  throw new MeshError('KUBERNETES_INVALID', `the API server's answer is no token: ${why}`);
}
