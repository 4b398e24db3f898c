/** Tests what a server does to a connection while its client reads the trust roots. */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { RootsCredentials } from '../../lib/grpc/credentials.ts';
import { DEFAULT_TLS_POLICY } from '../../lib/tls/parameters.ts';
import { makeScratch } from '../support/leftovers.ts';
import { createTunnelPki } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

const run = promisify(execFile);

for (const [how, end, reason] of [
  ['resets', (socket: Socket) => socket.resetAndDestroy(), /ECONNRESET/],
  ['closes', (socket: Socket) => socket.destroy(), /closed the connection before the TLS/],
] as const) {
  test(`a server that ${how} before the trust roots are read fails that connection alone`, async (t) => {
    const dir = await makeScratch('grpc');
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const { rootPem } = await createTunnelPki();
    // A reader waits for the writer.
    const path = join(dir, 'roots.pem');
    await run('mkfifo', [path]);
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.teardown(() => server.close());
    const connector = new RootsCredentials({
      roots: { kind: 'file', path },
      host: '127.0.0.1',
      altHostname: null,
      tls: DEFAULT_TLS_POLICY,
    })._createSecureConnector(null, null);
    // As the channel hands it over: without a listener.
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    const [accepted] = (await Promise.all([
      once(server, 'connection').then(([peer]) => peer as Socket),
      once(socket, 'connect'),
    ])) as [Socket, unknown];
    const refused = t.throwsAsync(connector.connect(socket), { message: reason });
    end(accepted);
    await until(() => socket.destroyed, { what: 'the client to see the end' });
    await writeFile(path, rootPem);
    await refused;
  });
}
