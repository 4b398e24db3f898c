/**
 * A process with an actor's admin server, for tests of the supervisor. Arguments: the socket, and how it behaves: `ready` after
 * a moment, `never` ready, or `dies`. At SIGTERM it drains until SIGINT.
 */
import { createServer } from 'node:http';

const [socket, behaviour] = process.argv.slice(2);
let state = behaviour === 'ready' ? 'ready' : 'starting';
if (behaviour === 'dies') process.exit(1);
process.on('SIGTERM', () => (state = 'draining'));
process.on('SIGINT', () => process.exit(0));
createServer((_request, response) => {
  const pending = state === 'starting' ? ['takeover'] : [];
  response.end(JSON.stringify({ actors: [{ state, pending }] }));
}).listen(socket);
