import type { AppProtocol } from '../../../lib/xds/resources/fields.ts';

const BY_WORD: Readonly<Record<string, AppProtocol>> = {
  http: 'HTTP11',
  http2: 'HTTP2',
  'kubernetes.io/h2c': 'HTTP2',
  'kubernetes.io/ws': 'HTTP11',
  grpc: 'GRPC',
  'grpc-web': 'GRPC',
};

/** The application protocol of a port: by its `appProtocol` or `protocol`, else by the prefix of its name. */
export function appProtocolOf(port: {
  readonly protocolWord?: string | undefined;
  readonly name?: string | undefined;
}): AppProtocol {
  if (port.protocolWord !== undefined) return BY_WORD[port.protocolWord.toLowerCase()] ?? 'UNKNOWN';
  const name = port.name ?? '';
  if (name === 'grpc-web' || name.startsWith('grpc-web-')) return 'GRPC';
  return BY_WORD[name.split('-', 1)[0] ?? ''] ?? 'UNKNOWN';
}
