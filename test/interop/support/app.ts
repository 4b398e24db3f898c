/** Runs the sample servers on given ports: `app.ts HTTP-PORT GREETING-PORT` prints a line when both listen. */
import { once } from 'node:events';
import { greetingServer, httpServer } from '../../../services/local-mesh/sample-protocols.ts';

const [http, greeting] = process.argv.slice(2).map(Number);
const servers = [httpServer('app').listen(http), greetingServer('app').listen(greeting)];
await Promise.all(servers.map((server) => once(server, 'listening')));
process.stdout.write('listening\n');
