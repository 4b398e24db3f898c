/**
 * A peer with a good certificate that misbehaves: asks the CA nonsense, then gets an identity and sends a pod's tunnel
 * port requests that make none. Run in a node's namespace; prints one JSON document.
 */
import { once } from 'node:events';
import { connect } from 'node:http2';
import type { ClientHttp2Session, OutgoingHttpHeaders } from 'node:http2';
import * as z from 'zod';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { CaClient, MAX_ANSWER_BYTES } from '../../lib/identity/ca-client.ts';
import { requestFor } from '../../lib/identity/csr.ts';

const inputSchema = z.strictObject({
  ca: z.string(),
  roots: z.string(),
  token: z.string(),
  identity: z.string(),
  /** IP of the pod. */
  pod: z.string(),
  /** IP of another pod, which the first must not be made to reach. */
  other: z.string(),
});

/** The only argument of the program. */
export type EdgeInput = z.infer<typeof inputSchema>;

/** The results of the program. */
export interface EdgeOutcome {
  /** Why the CA refused what is no request. */
  readonly csr: string;
  /** Status by request. */
  readonly statuses: Readonly<Record<string, number>>;
}

async function statusOf(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
): Promise<number> {
  const stream = session.request(headers, { endStream: false });
  const answered = once(stream, 'response') as Promise<[{ ':status'?: number }]>;
  // The answer is what counts; the stream may be reset right behind it.
  stream.on('error', () => undefined);
  const [response] = await answered;
  stream.close();
  return response[':status'] ?? 0;
}

async function main(input: EdgeInput): Promise<EdgeOutcome> {
  const client = new CaClient({
    address: input.ca,
    rootCa: input.roots,
    altHostname: null,
    authToken: input.token,
    clusterId: 'Kubernetes',
    headers: {},
    maxReceiveBytes: MAX_ANSWER_BYTES,
  });
  const ask = (csr: string): Promise<readonly string[]> =>
    client.createCertificate(
      { csr, validitySeconds: 600, impersonated: input.identity },
      AbortSignal.timeout(60_000),
    );
  const csr = await ask('nonsense').then(() => 'accepted', errorText);
  const { key, csrPem } = await requestFor(input.identity);
  const chain = await ask(csrPem);
  client.close();
  const session = connect(`https://${input.pod}:15008`, {
    key: key.export({ format: 'pem', type: 'pkcs8' }),
    cert: chain.join(''),
    // Its name is an identity, no host; whether it is the right one is not what is tested here.
    rejectUnauthorized: false,
  });
  await once(session, 'connect');
  const dial = (authority: string): OutgoingHttpHeaders => ({
    ':method': 'CONNECT',
    ':authority': authority,
  });
  const requests: Readonly<Record<string, OutgoingHttpHeaders>> = {
    get: { ':method': 'GET', ':path': '/', ':scheme': 'https', ':authority': `${input.pod}:8080` },
    'no port': dial(input.pod),
    'port out of range': dial(`${input.pod}:99999`),
    rubbish: dial('%%%'),
    'another pod': dial(`${input.other}:8080`),
    good: dial(`${input.pod}:8080`),
  };
  const statuses: Record<string, number> = {};
  for (const [name, headers] of Object.entries(requests)) {
    statuses[name] = await statusOf(session, headers);
  }
  session.destroy();
  return { csr, statuses };
}

if (import.meta.main) {
  const outcome = await main(inputSchema.parse(JSON.parse(process.argv[2] ?? '')));
  process.stdout.write(`${JSON.stringify(outcome)}\n`);
}
