/** Core Kubernetes kinds. Fields that the mesh reads are checked; for other fields only the name is. */
import * as z from 'zod';
import { dnsLabel, dnsSubdomain, labelMap } from '../../../lib/kubernetes/label-fields.ts';
import {
  filled,
  ipAddress,
  portName,
  portNumber,
  portReference,
  labelNamedMeta,
  objectMeta,
  unread,
} from './fields.ts';

/** A Namespace. */
export const namespaceSchema = z.strictObject({
  apiVersion: z.literal('v1'),
  kind: z.literal('Namespace'),
  metadata: labelNamedMeta,
  spec: z.looseObject({}).optional(),
  status: z.looseObject({}).optional(),
});

/** A Node. The mesh reads its labels. */
export const nodeSchema = z.strictObject({
  apiVersion: z.literal('v1'),
  kind: z.literal('Node'),
  metadata: objectMeta,
  spec: z.looseObject({}).optional(),
  status: z.looseObject({}).optional(),
});

/** A ConfigMap. */
export const configMapSchema = z.strictObject({
  apiVersion: z.literal('v1'),
  kind: z.literal('ConfigMap'),
  metadata: objectMeta,
  data: z.record(z.string(), z.string('must be text')).optional(),
  binaryData: z.record(z.string(), z.string('must be text')).optional(),
  immutable: z.boolean().optional(),
});

/** A ServiceAccount. */
export const serviceAccountSchema = z.strictObject({
  apiVersion: z.literal('v1'),
  kind: z.literal('ServiceAccount'),
  metadata: objectMeta,
  automountServiceAccountToken: z.boolean().optional(),
  imagePullSecrets: z.array(z.looseObject({})).optional(),
  secrets: z.array(z.looseObject({})).optional(),
});

const containerPort = z.strictObject({
  ...unread('hostIP', 'hostPort'),
  containerPort: portNumber,
  name: portName.optional(),
  protocol: z.enum(['TCP', 'UDP', 'SCTP']).optional(),
});

const environmentVariable = z.strictObject({
  ...unread('valueFrom'),
  name: filled,
  value: z.string('must be text (write numbers and booleans in quotes)').optional(),
});

const container = z.strictObject({
  ...unread('envFrom', 'imagePullPolicy', 'lifecycle', 'livenessProbe', 'readinessProbe'),
  ...unread('resizePolicy', 'resources', 'restartPolicyRules', 'securityContext', 'startupProbe'),
  ...unread('stdin', 'stdinOnce', 'terminationMessagePath', 'terminationMessagePolicy', 'tty'),
  ...unread('volumeDevices', 'volumeMounts'),
  name: dnsLabel,
  image: z.string().optional(),
  command: z.array(z.string('must be text')).optional(),
  args: z.array(z.string('must be text')).optional(),
  workingDir: z.string().optional(),
  ports: z.array(containerPort).optional(),
  env: z.array(environmentVariable).optional(),
  restartPolicy: z.enum(['Always', 'OnFailure', 'Never']).optional(),
});

const podSpec = z.strictObject({
  ...unread('activeDeadlineSeconds', 'affinity', 'automountServiceAccountToken', 'dnsConfig'),
  ...unread('dnsPolicy', 'enableServiceLinks', 'ephemeralContainers', 'hostAliases', 'hostIPC'),
  ...unread('hostPID', 'hostUsers', 'hostname', 'hostnameOverride', 'imagePullSecrets'),
  ...unread('nodeSelector', 'os', 'overhead', 'preemptionPolicy', 'priority', 'priorityClassName'),
  ...unread('readinessGates', 'resourceClaims', 'resources', 'runtimeClassName', 'schedulerName'),
  ...unread('schedulingGates', 'securityContext', 'setHostnameAsFQDN', 'shareProcessNamespace'),
  ...unread('subdomain', 'terminationGracePeriodSeconds', 'tolerations', 'volumes'),
  ...unread('topologySpreadConstraints'),
  nodeName: dnsSubdomain.optional(),
  serviceAccountName: dnsSubdomain.optional(),
  /** Deprecated name of `serviceAccountName`. */
  serviceAccount: dnsSubdomain.optional(),
  hostNetwork: z.boolean().optional(),
  restartPolicy: z.enum(['Always', 'OnFailure', 'Never']).optional(),
  containers: z.array(container).min(1, 'must hold at least one container'),
  initContainers: z.array(container).optional(),
});

/** The part of a Pod's status that the mesh reads and writes. */
const podStatus = z.looseObject({
  phase: z.enum(['Pending', 'Running', 'Succeeded', 'Failed', 'Unknown']).optional(),
  podIP: z.string().optional(),
  podIPs: z.array(z.looseObject({ ip: ipAddress })).optional(),
  conditions: z
    .array(z.looseObject({ type: filled, status: z.enum(['True', 'False', 'Unknown']) }))
    .optional(),
});

/** A Pod. */
export const podSchema = z.strictObject({
  apiVersion: z.literal('v1'),
  kind: z.literal('Pod'),
  metadata: objectMeta,
  spec: podSpec,
  status: podStatus.optional(),
});

const servicePort = z.strictObject({
  name: portName.optional(),
  protocol: z.enum(['TCP', 'UDP', 'SCTP']).optional(),
  appProtocol: filled.optional(),
  port: portNumber,
  targetPort: portReference.optional(),
  nodePort: portNumber.optional(),
});

/** Values of `spec.trafficDistribution`. */
export const TRAFFIC_DISTRIBUTIONS = ['PreferClose', 'PreferSameZone', 'PreferSameNode'] as const;

const ipFamily = z.enum(['IPv4', 'IPv6']);

const serviceSpec = z
  .strictObject({
    type: z.enum(['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName']).optional(),
    selector: labelMap.optional(),
    ports: z.array(servicePort).optional(),
    clusterIP: z
      .union([z.literal('None'), z.literal(''), ipAddress], 'is not an IP address or None')
      .optional(),
    clusterIPs: z
      .array(z.union([z.literal('None'), ipAddress], 'is not an IP address or None'))
      .max(2, 'must hold at most one address per family')
      .optional(),
    ipFamilies: z.array(ipFamily).max(2, 'must hold each family at most once').optional(),
    ipFamilyPolicy: z.enum(['SingleStack', 'PreferDualStack', 'RequireDualStack']).optional(),
    internalTrafficPolicy: z.enum(['Cluster', 'Local']).optional(),
    externalTrafficPolicy: z.enum(['Cluster', 'Local']).optional(),
    trafficDistribution: z.enum(TRAFFIC_DISTRIBUTIONS).optional(),
    publishNotReadyAddresses: z.boolean().optional(),
    externalName: z.string().optional(),
    externalIPs: z.array(ipAddress).optional(),
    sessionAffinity: z.enum(['None', 'ClientIP']).optional(),
    sessionAffinityConfig: z.looseObject({}).optional(),
    loadBalancerIP: z.string().optional(),
    loadBalancerClass: z.string().optional(),
    loadBalancerSourceRanges: z.array(z.string()).optional(),
    allocateLoadBalancerNodePorts: z.boolean().optional(),
    healthCheckNodePort: z.int().optional(),
  })
  .superRefine((spec, context) => {
    const ports = spec.ports ?? [];
    const external = spec.type === 'ExternalName';
    if (ports.length === 0 && !external && spec.clusterIP !== 'None') {
      context.addIssue({ code: 'custom', path: ['ports'], message: 'must hold at least one port' });
    }
    if (external && (spec.externalName ?? '') === '') {
      context.addIssue({ code: 'custom', path: ['externalName'], message: 'is required' });
    }
    checkPortNames(ports, context);
    const first = spec.clusterIPs?.[0];
    const single = spec.clusterIP ?? '';
    if (first !== undefined && single !== '' && single !== first) {
      context.addIssue({
        code: 'custom',
        path: ['clusterIPs', 0],
        message: 'must be the same as clusterIP',
      });
    }
    if (spec.ipFamilies !== undefined && new Set(spec.ipFamilies).size < spec.ipFamilies.length) {
      context.addIssue({ code: 'custom', path: ['ipFamilies'], message: 'lists a family twice' });
    }
  });

/** Requires distinct names for several ports, and refuses a number and protocol that occur twice. */
function checkPortNames(
  ports: readonly {
    readonly name?: string | undefined;
    readonly port: number;
    readonly protocol?: string | undefined;
  }[],
  context: z.RefinementCtx,
): void {
  const names = new Set<string>();
  const numbers = new Set<string>();
  for (const [index, port] of ports.entries()) {
    const report = (field: string, message: string): void =>
      context.addIssue({ code: 'custom', path: ['ports', index, field], message });
    if (ports.length > 1 && port.name === undefined) {
      report('name', 'is required when there is more than one port');
    }
    if (port.name !== undefined && names.has(port.name))
      report('name', `"${port.name}" occurs twice`);
    const number = `${port.port}/${port.protocol ?? 'TCP'}`;
    if (numbers.has(number)) report('port', `${number} occurs twice`);
    if (port.name !== undefined) names.add(port.name);
    numbers.add(number);
  }
}

/** A Service. */
export const serviceSchema = z.strictObject({
  apiVersion: z.literal('v1'),
  kind: z.literal('Service'),
  metadata: labelNamedMeta,
  spec: serviceSpec,
  status: z.looseObject({}).optional(),
});
