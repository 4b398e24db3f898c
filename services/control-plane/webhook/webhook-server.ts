/** The admission webhook: HTTPS for the API server. */
import type { Endpoint } from '../../../lib/config/fields.ts';
import { HttpRefusal, readJson, sendJson, sendText } from '../../../lib/http/answers.ts';
import { HttpServer } from '../../../lib/http/http-server.ts';
import { RouteTable } from '../../../lib/http/routes.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { MetricRegistry } from '../../../lib/metrics/registry.ts';
import type { ServingCertificate, TlsPolicy } from '../../../lib/tls/parameters.ts';
import { MAX_REVIEW_BYTES } from '../limits.ts';
import { admit } from './admission.ts';

/** Answers `POST /validate`. The owner closes it. */
export class WebhookServer {
  readonly #server: HttpServer;

  constructor(
    certificate: ServingCertificate,
    tls: TlsPolicy,
    { log, metrics }: { readonly log: Logger; readonly metrics: MetricRegistry },
  ) {
    const reviews = metrics.counter(
      'weft_control_plane_webhook_reviews_total',
      'Objects that the admission webhook has judged',
      ['kind', 'outcome'],
    );
    const routes = new RouteTable();
    routes.route('GET', '/ready', (_request, response) => sendText(response, 200, 'ok\n'));
    routes.route('POST', '/validate', async (request, response) => {
      const review = await readJson(request, MAX_REVIEW_BYTES);
      const answer = admit(review);
      if (answer === null) throw new HttpRefusal(400, 'the body is no AdmissionReview of v1');
      const { allowed, status } = answer.response;
      reviews.inc({ kind: kindOf(review), outcome: allowed ? 'allowed' : 'refused' });
      if (!allowed) log.info({ problem: status?.message ?? '' }, 'webhook.object-refused');
      sendJson(response, 200, answer);
    });
    this.#server = new HttpServer(routes.handle, {
      name: 'webhook',
      log,
      readsBodies: true,
      tls: { certificate, policy: tls },
    });
  }

  /** Listens; resolves with the port. */
  async listen(endpoint: Endpoint): Promise<number | null> {
    await this.#server.listen(endpoint);
    return this.#server.port;
  }

  /** Uses this certificate for new connections. */
  rotate(certificate: ServingCertificate): void {
    this.#server.rotate(certificate);
  }

  close(): Promise<void> {
    return this.#server.close();
  }
}

/** The kind of a review that {@link admit} has understood; it is one of the webhook's rules, so there are few. */
function kindOf(review: unknown): string {
  return (review as { readonly request: { readonly kind: { readonly kind: string } } }).request.kind
    .kind;
}
