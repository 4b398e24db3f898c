/** Objects of an application, in the form that a cluster has them. */
import type { TestObject } from './cluster.ts';

/** The variable parts of a pod. */
export interface PodOptions {
  readonly ip: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly ready?: boolean;
  readonly node?: string;
  readonly account?: string;
  readonly phase?: string;
}

/** A pod that runs on `node-1` under the account `default` and has joined the mesh, unless told otherwise. */
export function pod(namespace: string, name: string, options: PodOptions): TestObject {
  const { ip, labels = {}, ready = true, node = 'node-1', account = 'default' } = options;
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name,
      namespace,
      labels,
      annotations: { 'ambient.istio.io/redirection': 'enabled' },
    },
    spec: {
      nodeName: node,
      serviceAccountName: account,
      containers: [{ name: 'main', image: 'main', ports: [{ name: 'http', containerPort: 8080 }] }],
    },
    status: {
      phase: options.phase ?? 'Running',
      podIP: ip,
      podIPs: [{ ip }],
      conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
    },
  };
}

/** A Service with the port 80, which leads to the pods' port `http`. */
export function service(
  namespace: string,
  name: string,
  options: {
    readonly selector?: Readonly<Record<string, string>>;
    readonly labels?: Readonly<Record<string, string>>;
  } = {},
): TestObject {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace, labels: options.labels ?? {} },
    spec: {
      ...(options.selector === undefined ? {} : { selector: options.selector }),
      ports: [{ name: 'http', port: 80, targetPort: 'http' }],
    },
  };
}
