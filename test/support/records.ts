import type { ConnectionRecord } from '../../workers/listener/protocol/connections.ts';

/** Makes the record of a live plain connection, with changes. */
export function connectionRecord(parts: Partial<ConnectionRecord> = {}): ConnectionRecord {
  return {
    podUid: 'u',
    direction: 'outbound',
    protocol: 'TCP',
    source: '10.0.0.1:40000',
    destination: '10.0.0.2:80',
    actualDestination: '10.0.0.2:80',
    forwardedHost: null,
    destinationService: null,
    sourceWorkload: null,
    destinationWorkload: null,
    sourceIdentity: null,
    destinationIdentity: null,
    bytesSent: 0,
    bytesReceived: 0,
    openedAtMs: 0,
    traceId: null,
    route: null,
    tunnel: null,
    policy: null,
    steps: { understoodMs: 0, admittedMs: null, connectedMs: null, firstByteMs: null },
    end: null,
    accessLine: null,
    ...parts,
  };
}
