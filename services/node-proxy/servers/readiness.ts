import { sendText } from '../../../lib/actor/admin-routes.ts';
import type { AdminHandler } from '../../../lib/actor/admin-routes.ts';

/** Serves `/healthz/ready` of port 15021 (docs/spec/observability.md §5). */
export function readinessHandler(pending: () => readonly string[]): AdminHandler {
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
