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
server.listen(${APP_PORT}, '::');
process.on('SIGTERM', () => process.exit(0));
`;

/** The answer of the server. */
export interface AppAnswer {
  readonly pod: string;
  /** The address that the server saw. */
  readonly from: string;
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
            containers: [
              {
                name: 'server',
                image: WEFT_IMAGE,
                imagePullPolicy: 'Never',
                command: ['/opt/weft/node_modules/.bin/node', '-e', SERVER],
                ports: [{ name: 'http', containerPort: APP_PORT }],
                readinessProbe: {
                  httpGet: { path: '/ready', port: 'http' },
                  periodSeconds: 1,
                  failureThreshold: 1,
                },
              },
            ],
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
