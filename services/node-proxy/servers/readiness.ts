import { sendText } from '../../../lib/http/answers.ts';
import type { HttpHandler } from '../../../lib/http/routes.ts';

/** Serves `/healthz/ready` of port 15021 (docs/spec/observability.md §5). */
export function readinessHandler(pending: () => readonly string[]): HttpHandler {
  return (request, response, url) => {
    if (url.pathname !== '/healthz/ready') {
      sendText(response, 404, 'not found\n');
      return;
    }
    if (request.method !== 'GET') {
      sendText(response, 405, 'use GET\n');
      return;
    }
    const names = [...pending()].sort();
    if (names.length === 0) sendText(response, 200, 'ready\n');
    else sendText(response, 500, `not ready, pending: ${names.join(', ')}\n`);
  };
}
