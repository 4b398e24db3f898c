/** The policies of a pod in a listener thread, and connections that they bind. */
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { AccessLog } from '../../lib/log/access-log.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { ConnectionFacts as PolicyFacts } from '../../lib/policy/model.ts';
import type { Workload } from '../../lib/state/model.ts';
import { PodPolicy } from '../../workers/listener/policy.ts';
import type { StateClient } from '../../workers/listener/state-client.ts';
import { Connection } from '../../workers/listener/telemetry/connection.ts';
import type { ConnectionFacts } from '../../workers/listener/telemetry/connection.ts';
import { ThreadMetrics } from '../../workers/listener/telemetry/thread-metrics.ts';
import { trafficKit } from './series.ts';
import { service, workload } from './workloads.ts';

/** The parts of a test's policies. */
export interface PodPolicyParts {
  readonly pod: ConstructorParameters<typeof PodPolicy>[0]['pod'];
  readonly connections: Connection[];
  readonly state: StateClient;
  readonly log: Logger;
}

/** Makes policies that refuse unknown references; the end of the test closes them. */
export function podPolicy(t: ExecutionContext, parts: PodPolicyParts): PodPolicy {
  const policy = new PodPolicy({
    ...parts,
    metrics: new ThreadMetrics(0),
    unknownReference: 'deny',
    infoLogging: false,
  });
  t.teardown(() => policy.close());
  return policy;
}

/** Makes a plain inbound connection to a workload, and the facts by which policies judge it. */
export function inboundConnection(
  destinationWorkload: Workload,
  port: number,
  log: Logger,
): { readonly connection: Connection; readonly facts: PolicyFacts } {
  const end = { ip: '10.0.0.1', port };
  const connection = new Connection(
    {
      direction: 'inbound',
      protocol: 'TCP',
      source: end,
      destination: end,
      actualDestination: end,
      hboneAddress: null,
      sourceWorkload: null,
      sourceBaggage: null,
      destinationWorkload,
      destinationService: null,
      sourceIdentity: null,
    },
    {
      access: new AccessLog(log),
      traffic: trafficKit().metrics,
      metrics: new ThreadMetrics(0),
      clock: systemClock,
    },
  );
  const facts = {
    sourceIp: end.ip,
    sourceIdentity: null,
    destinationIp: end.ip,
    destinationPort: end.port,
  };
  return { connection, facts };
}

/** Makes the facts of an outbound connection from `client-1` to the pod `web-1` through a tunnel. */
export function outboundFacts(changes: Partial<ConnectionFacts> = {}): ConnectionFacts {
  return {
    direction: 'outbound',
    protocol: 'HBONE',
    source: { ip: '10.0.0.1', port: 4_000 },
    destination: { ip: '10.96.0.1', port: 80 },
    actualDestination: { ip: '10.0.0.2', port: 15_008 },
    hboneAddress: '10.0.0.2:8080',
    sourceWorkload: workload({ name: 'client-1' }),
    sourceBaggage: null,
    destinationWorkload: workload({ name: 'web-1' }),
    destinationService: service(),
    sourceIdentity: null,
    ...changes,
  };
}
