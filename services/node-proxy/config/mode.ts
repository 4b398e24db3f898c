import type { ConfigValues } from '../../../lib/config/define-config.ts';
import { bool, makeField, oneOf, text } from '../../../lib/config/fields.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { DnsSettings } from '../../../workers/listener/protocol/settings.ts';
import type { WorkloadName } from '../state-thread/protocol.ts';

const workloadInfo = makeField(
  parseWorkloadInfo,
  ({ namespace, name, serviceAccount }) => `${namespace}/${name}/${serviceAccount}`,
);

/** Variables that say which pods the process serves (docs/spec/inpod.md, first lines). */
export const modeVariables = {
  ENABLE_PROXY: {
    schema: bool({ default: true }),
    description: 'carry traffic; false: only DNS, and nothing listens for redirected connections',
  },
  PROXY_MODE: {
    schema: oneOf('shared', 'dedicated')({ optional: true }),
    description:
      'shared (default): the pods the node agent names; dedicated: one workload, in the network namespace of the process',
  },
  PROXY_WORKLOAD_INFO: {
    schema: workloadInfo({ optional: true }),
    description: 'namespace/name/serviceAccount of the workload of dedicated mode',
  },
  INPOD_UDS: {
    schema: text({ default: '/var/run/ztunnel/ztunnel.sock' }),
    description: "the node agent's socket",
  },
  WEFT_NODE_PROXY_SIBLINGS: {
    schema: text({ optional: true }),
    description:
      'socket by which the proxies of a node share one session with the node agent; all name the same path; unset: each has its own session',
    when: 'several proxies of one generation run on a node under an unmodified istio-cni, which gives new pods to one session alone',
  },
} as const;

/** Returns the workload of dedicated mode, null in shared mode. Throws CONFIG_INVALID when dedicated mode names none. */
export function dedicatedWorkload(values: ConfigValues<typeof modeVariables>): WorkloadName | null {
  if (values.PROXY_MODE !== 'dedicated') return null;
  if (values.PROXY_WORKLOAD_INFO === null) {
    throw new MeshError(
      'CONFIG_INVALID',
      'PROXY_WORKLOAD_INFO is required with PROXY_MODE=dedicated: namespace/name/serviceAccount',
    );
  }
  return values.PROXY_WORKLOAD_INFO;
}

/** Returns the socket of the node's proxies, null when each has its own session. Throws CONFIG_INVALID for the agent's own socket. */
export function siblingsPath({
  INPOD_UDS: agent,
  WEFT_NODE_PROXY_SIBLINGS: siblings,
}: Pick<ConfigValues<typeof modeVariables>, 'INPOD_UDS' | 'WEFT_NODE_PROXY_SIBLINGS'>):
  | string
  | null {
  if (siblings === null || siblings !== agent) return siblings;
  throw new MeshError(
    'CONFIG_INVALID',
    `WEFT_NODE_PROXY_SIBLINGS must be another path than INPOD_UDS, got "${siblings}" for both`,
  );
}

/** Throws CONFIG_INVALID when the process would have nothing to do. */
export function requireWork(enableProxy: boolean, dns: DnsSettings | null): void {
  if (enableProxy || dns !== null) return;
  throw new MeshError(
    'CONFIG_INVALID',
    'ENABLE_PROXY=false and ISTIO_META_DNS_CAPTURE other than true leave nothing to do',
  );
}

/** A name that Kubernetes allows for a namespace, a pod or an account; it becomes part of a SPIFFE identity. */
const NAME = /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/;

function parseWorkloadInfo(text: string): WorkloadName {
  const [namespace = '', name = '', serviceAccount = '', ...rest] = text.split('/');
  const isGood = [namespace, name, serviceAccount].every((part) => NAME.test(part));
  if (!isGood || rest.length > 0) throw new Error('must be namespace/name/serviceAccount');
  return { namespace, name, serviceAccount };
}
