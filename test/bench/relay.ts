/** A plain TCP relay on Node streams: no TLS, no policy. What a byte costs in Node before a mesh does anything. */
import { connect, createServer } from 'node:net';

const forwards = JSON.parse(process.argv[2] ?? '[]') as {
  listen: number;
  host: string;
  port: number;
}[];

for (const { listen, host, port } of forwards) {
  createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const upstream = connect({ host, port, allowHalfOpen: true, noDelay: true });
    client.pipe(upstream).pipe(client);
    // A relay has nobody to tell: either side's failure ends the other.
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
  }).listen(listen, '::');
}
