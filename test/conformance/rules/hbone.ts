import { rule } from '../rule.ts';
import type { Specification } from '../rule.ts';

/** TLS, HTTP/2 and the tunnel pool. */
export const hbone: Specification = {
  file: 'hbone.md',
  title: 'HBONE',
  rules: [
    rule('1', 'one CONNECT stream for a connection; no push, no trailers, no extended CONNECT'),
    rule('2', 'TLS versions, suites, groups, ALPN h2, no SNI, no resumption', {
      deviates: 'no-tls-resumption',
    }),
    rule(
      '3',
      'the peer is verified by chain, usage and SPIFFE identity, each side by its own list',
    ),
    rule('4', 'revocation lists: both directions, whole chain, live tunnels', {
      deviates: 'revocation',
    }),
    rule('5', 'pseudo headers and headers of the request, and how they are parsed'),
    rule('6', 'baggage: order, parsing, what is ignored'),
    rule(
      '7',
      '200 only after policy and application; errors end the stream; anything but 200 fails',
    ),
    rule('8', 'settings, flow control, keepalive, end codes, graceful drain'),
    rule('9', 'pool: key, streams per session, waiters, idle release', { deviates: 'tunnel-life' }),
    rule('10', 'double tunnel: who verifies whom, which headers, own keepalive'),
    rule('11', 'what an unmodified peer expects of us'),
  ],
};
