/** Runs one half of a relay pair with only mutual TLS between them: the ceiling of TypeScript over `node:tls`. */
import { readFileSync } from 'node:fs';
import { connect as connectTcp, createServer as createTcpServer } from 'node:net';
import {
  connect as connectTls,
  createSecureContext,
  createServer as createTlsServer,
} from 'node:tls';
import { BUFFER_BYTES, join, relayOptions } from './forward.ts';

const { side, certificateFile, rootFile, forwards } = relayOptions();
const pem = readFileSync(certificateFile);
const trust = { cert: pem, key: pem, ca: readFileSync(rootFile), minVersion: 'TLSv1.3' } as const;
const secureContext = createSecureContext(trust);
const socketOptions = { allowHalfOpen: true, noDelay: true, highWaterMark: BUFFER_BYTES };

for (const { listen, host, port } of forwards) {
  if (side === 'client') {
    createTcpServer(socketOptions, (socket) => {
      const upstream = connectTls({
        socket: connectTcp({ ...socketOptions, host, port }),
        secureContext,
        // Both ends share this run's certificate; the chain to its root is checked.
        checkServerIdentity: () => undefined,
      });
      join(socket, upstream);
    }).listen(listen, '::', 4_096);
  } else {
    createTlsServer(
      { ...socketOptions, ...trust, requestCert: true, rejectUnauthorized: true },
      (socket) => join(socket, connectTcp({ ...socketOptions, host, port })),
    ).listen(listen, '::', 4_096);
  }
}
