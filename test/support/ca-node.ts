/** A node that asks a CA directly, and mutual TLS between two such nodes. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { connect, createServer } from 'node:tls';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { asMeshError } from '../../lib/errors/mesh-error.ts';
import { CaClient, MAX_ANSWER_BYTES } from '../../lib/identity/ca-client.ts';
import { CertificateManager } from '../../lib/identity/certificate-manager.ts';
import { certificateMetrics } from '../../lib/identity/certificate-metrics.ts';
import { TrustBundle } from '../../lib/identity/trust-bundle.ts';
import type { WorkloadCertificate } from '../../lib/identity/workload-certificate.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { keptLog } from './actor-context.ts';
import type { LogLine } from './actor-context.ts';
import type { CaKit } from './ca-kit.ts';
import { until } from './until.ts';

/** Between two handshakes, so that they leave the processor to the CA and its clients. */
const PAUSE_MS = 100;

/** Far above what a busy machine needs: it only ends a connection that hangs. */
const LONGEST_HANDSHAKE_MS = 60_000;

/** The certificate of one identity, kept by the manager of node-proxy. */
export interface CaNode {
  readonly lines: LogLine[];
  /** The one in use. Throws when there is none. */
  current(): WorkloadCertificate;
}

/** Keeps a certificate of `seconds` for an identity, with the roots of `bundlePath`, until the test ends. */
export async function startCaNode(
  t: ExecutionContext,
  kit: CaKit,
  options: {
    readonly node: string;
    readonly identity: string;
    readonly bundlePath: string;
    readonly seconds: number;
  },
): Promise<CaNode> {
  const { node, identity, bundlePath, seconds } = options;
  const { log, lines } = keptLog(node);
  const bundle = new TrustBundle({ kind: 'file', path: bundlePath }, { clock: systemClock, log });
  await bundle.start();
  const ca = new CaClient({
    address: kit.address(),
    rootCa: bundlePath,
    altHostname: null,
    authToken: await kit.nodeToken(node),
    clusterId: 'Kubernetes',
    headers: {},
    maxReceiveBytes: MAX_ANSWER_BYTES,
  });
  bundle.onChange(() => ca.reconnect());
  const manager: CertificateManager = new CertificateManager(node, {
    clock: systemClock,
    log,
    bundle,
    metrics: certificateMetrics(new MetricRegistry(), {
      counts: () => manager.counts(),
      hoursToFirstExpiry: () => manager.hoursToFirstExpiry(),
    }),
    signing: {
      request: async (name, csr, _urgency, { signal }) => {
        try {
          return await ca.createCertificate(
            { csr, validitySeconds: seconds, impersonated: name },
            signal,
          );
        } catch (error) {
          throw asMeshError(error, 'IDENTITY_UNAVAILABLE');
        }
      },
      raise: () => undefined,
      hasten: () => undefined,
    },
  });
  t.teardown(() => {
    manager.close();
    bundle.close();
    ca.close();
  });
  const current = (): WorkloadCertificate => {
    const status = manager.want(identity, 'realTime');
    if (status.kind === 'available') return status.certificate;
    throw new Error(`${identity} has no certificate: ${status.kind}`);
  };
  await until(current, { what: `a certificate of ${identity}` });
  return { lines, current };
}

/** The handshakes so far. */
export interface Handshakes {
  readonly made: number;
  readonly failures: readonly string[];
}

/** Makes one mutual TLS connection after the other, with the certificates as they are then, until the test ends. */
export async function startHandshakes(
  t: ExecutionContext,
  client: CaNode,
  server: CaNode,
): Promise<Handshakes> {
  const count = { made: 0, failures: [] as string[] };
  const listening = createServer(
    { requestCert: true, rejectUnauthorized: true, ...material(server) },
    (socket) => {
      socket.on('error', () => socket.destroy());
      socket.end('.');
    },
  );
  listening.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  const { port } = listening.address() as AddressInfo;
  const ended = new AbortController();
  const loop = (async () => {
    while (!ended.signal.aborted) {
      try {
        listening.setSecureContext(material(server));
        await handshake(port, client);
        count.made += 1;
      } catch (error) {
        count.failures.push(String(error));
      }
      await wait(PAUSE_MS);
    }
  })();
  t.teardown(async () => {
    ended.abort();
    await loop;
    listening.close();
  });
  return count;
}

function handshake(port: number, client: CaNode): Promise<void> {
  const socket = connect({
    port,
    host: '127.0.0.1',
    checkServerIdentity: () => undefined,
    ...material(client),
  });
  return new Promise((resolve, reject) => {
    socket.setTimeout(LONGEST_HANDSHAKE_MS, () => socket.destroy(new Error('no answer')));
    socket.on('error', reject);
    // A server that refuses the certificate may end the connection without another word.
    socket.on('close', () => reject(new Error('closed without an answer')));
    // The byte comes after the server has accepted the client's certificate.
    socket.on('data', () => {
      resolve();
      socket.destroy();
    });
  });
}

function material(node: CaNode): {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
} {
  const { chainPem, key, rootsPem } = node.current();
  return {
    cert: chainPem,
    key: key.export({ format: 'pem', type: 'pkcs8' }),
    ca: rootsPem,
  };
}
