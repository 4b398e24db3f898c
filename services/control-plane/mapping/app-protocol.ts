import type { AppProtocol } from '../../../lib/xds/resources/fields.ts';

const BY_WORD: ReadonlyMap<string, AppProtocol> = new Map([
  ['http', 'HTTP11'],
  ['http2', 'HTTP2'],
  ['kubernetes.io/h2c', 'HTTP2'],
  ['kubernetes.io/ws', 'HTTP11'],
  ['kubernetes.io/wss', 'TLS'],
  ['grpc', 'GRPC'],
  ['https', 'TLS'],
  ['tls', 'TLS'],
  ['tcp', 'TCP'],
]);
/** SMTP, DNS, MySQL and MongoDB, whose server speaks first or which are no HTTP. */
const TCP_PORTS: ReadonlySet<number> = new Set([25, 53, 3306, 27_017]);

/** The protocol that a ServiceEntry names for its port. */
export function protocolOfWord(word: string | undefined): AppProtocol {
  return BY_WORD.get((word ?? '').toLowerCase()) ?? 'UNKNOWN';
}

/**
 * The protocol of a Service's port: by its `appProtocol`, else by the first part of its name. Ports whose protocol is well
 * known are TCP.
 */
export function servicePortProtocol(port: {
  readonly port: number;
  readonly name?: string | undefined;
  readonly appProtocol?: string | undefined;
  readonly protocol?: string | undefined;
}): AppProtocol {
  if (port.protocol === 'UDP') return 'UNKNOWN';
  const word = (port.appProtocol ?? port.name ?? '').toLowerCase();
  // gRPC-Web is HTTP that a node does not tell apart.
  if (word.startsWith('grpc-web')) return 'UNKNOWN';
  const known = BY_WORD.get(word) ?? BY_WORD.get(word.split('-', 1)[0] ?? '');
  return known ?? (TCP_PORTS.has(port.port) ? 'TCP' : 'UNKNOWN');
}
