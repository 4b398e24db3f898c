/** The application of the cluster's tests: a server that tells its pod, from Weft's own image. */
import type { TestObject } from '../../kubernetes/support/cluster.ts';
import { WEFT_IMAGE } from '../../support/weft-image.ts';

/** Port of the server. */
export const APP_PORT = 8080;
/** While this file exists the pod is not ready. */
export const UNREADY_FILE = '/tmp/unready';

const SERVER = `
const { existsSync } = require('node:fs');
const { createServer } = require('node:http');
const server = createServer(({ url, socket }, response) => {
  response.statusCode = url === '/ready' && existsSync('${UNREADY_FILE}') ? 503 : 200;
  response.end(JSON.stringify({ pod: process.env.HOSTNAME, from: socket.remoteAddress }));
});
// It ends no connection by itself, however slow its client is.
server.keepAliveTimeout = server.requestTimeout = server.headersTimeout = 0;
const serve = () => server.listen(${APP_PORT}, '::');
const { ASKS } = process.env;
if (ASKS === undefined) serve();
else fetch(ASKS).then((answer) => answer.text(), String).then(console.log).then(serve);
process.on('SIGTERM', () => process.exit(0));
`;

/** The answer of the server. */
export interface AppAnswer {
  readonly pod: string;
  /** The address that the server saw. */
  readonly from: string;
}

const SERVER_CONTAINER = {
  name: 'server',
  image: WEFT_IMAGE,
  imagePullPolicy: 'Never',
  command: ['/opt/weft/node_modules/.bin/node', '-e', SERVER],
  ports: [{ name: 'http', containerPort: APP_PORT }],
  // Without a request it gets what all others leave of a busy processor, and may be late for a probe.
  resources: { requests: { cpu: '50m' } },
  readinessProbe: {
    httpGet: { path: '/ready', port: 'http' },
    periodSeconds: 1,
    failureThreshold: 1,
    // A busy machine makes no pod unready.
    timeoutSeconds: 10,
  },
};

/** A server on a node of choice. */
export interface SinglePod {
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
  /** A URL that it asks before it serves; the answer, or the reason why there is none, is in its log. */
  readonly asks?: string;
}

/** A single server as a pod. */
export function singlePod({ namespace, name, node, asks }: SinglePod): TestObject {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace, labels: { app: name } },
    spec: {
      nodeName: node,
      terminationGracePeriodSeconds: 1,
      securityContext: { runAsUser: 1_000 },
      containers: [
        {
          ...SERVER_CONTAINER,
          ...(asks === undefined ? {} : { env: [{ name: 'ASKS', value: asks }] }),
        },
      ],
    },
  };
}

/** A Deployment of servers that is spread evenly over the nodes, and its Service of both families. */
export function app(namespace: string, name: string, replicas: number): readonly TestObject[] {
  const labels = { app: name };
  return [
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name, namespace } },
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name, namespace },
      spec: {
        replicas,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            serviceAccountName: name,
            terminationGracePeriodSeconds: 1,
            // Not the user of a proxy.
            securityContext: { runAsUser: 1_000 },
            topologySpreadConstraints: [
              {
                maxSkew: 1,
                topologyKey: 'kubernetes.io/hostname',
                whenUnsatisfiable: 'DoNotSchedule',
                labelSelector: { matchLabels: labels },
              },
            ],
            containers: [SERVER_CONTAINER],
          },
        },
      },
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name, namespace },
      spec: {
        ipFamilyPolicy: 'RequireDualStack',
        selector: labels,
        ports: [{ name: 'http', port: 80, targetPort: 'http' }],
      },
    },
  ];
}
