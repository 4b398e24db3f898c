/**
 * A process with an actor's admin server, for tests of the supervisor. Arguments: the socket, and how it behaves: `ready` after
 * a moment, `never` ready, or `dies`. At SIGTERM, or told so by its server, it drains until SIGINT; `how` it was told is in its status.
 */
import { createServer } from '../../lib/http/node-http.ts';

const [socket, behaviour] = process.argv.slice(2);
let state = behaviour === 'ready' ? 'ready' : 'starting';
if (behaviour === 'dies') process.exit(1);
let how: string | null = null;
process.on('SIGTERM', () => drain('SIGTERM'));
process.on('SIGINT', () => process.exit(0));
createServer((request, response) => {
  if (request.method === 'POST') drain(request.url ?? '');
  const pending = state === 'starting' ? ['takeover'] : [];
  response.end(JSON.stringify({ actors: [{ state, pending }], how }));
}).listen(socket);

function drain(by: string): void {
  state = 'draining';
  how ??= by;
}
