/** Finds the secrets of the mesh that a container can read. */
import type { Compose } from '../support/compose.ts';

/** A secret, and the services that need it. */
export interface Secret {
  readonly name: string;
  readonly text: string;
  readonly holders: readonly string[];
}

/** Services whose readable secrets are checked: all but those that may read everything on the machine. */
const READERS = [
  'ca',
  'control-plane',
  'xds-ingester',
  'policy-evaluator',
  'node-1-fetcher',
  'node-1-proxy',
  'node-1-agent',
  'node-2-fetcher',
  'node-2-proxy',
  'node-2-agent',
  'redis',
];

/** The services whose readable secrets are checked. */
export const SECRET_READERS: readonly string[] = READERS;

/** Lists all secrets of a mesh: passwords, tokens, and their signing keys. */
export async function secretsOf(compose: Compose): Promise<readonly Secret[]> {
  const read = async (service: string, path: string): Promise<string> =>
    (await compose.exec(service, 'cat', path)).trim();
  const password = async (user: string, holder: string): Promise<Secret> => ({
    name: `password of ${user}`,
    text: await read('prepare', `/run/weft/secrets/redis/${user}`),
    holders: [holder],
  });
  const token = async (bearer: string, holders: readonly string[]): Promise<Secret> => ({
    name: `token of ${bearer}`,
    text: await read('prepare', `/run/weft/tokens/${bearer}/istio-token`),
    holders,
  });
  const nodes = await Promise.all(
    ['node-1', 'node-2'].flatMap((node) => [
      password(`node-agent.${node}`, `${node}-agent`),
      password(`cert-fetcher.${node}`, `${node}-fetcher`),
      password(`node-proxy.${node}`, `${node}-proxy`),
      token(node, [`${node}-fetcher`, `${node}-proxy`]),
    ]),
  );
  return [
    ...nodes,
    await password('control-plane', 'control-plane'),
    await password('xds-ingester', 'xds-ingester'),
    await password('policy-evaluator', 'policy-evaluator'),
    await password('cli', 'supervisor'),
    await token('control-plane', ['control-plane']),
    await token('xds-ingester', ['xds-ingester']),
    {
      name: 'key that signs tokens',
      text: keyBody(await read('prepare', '/run/weft/tokens/signing-key.pem')),
      holders: [],
    },
    {
      name: 'key of the control plane',
      text: keyBody(await read('control-plane', '/run/weft/state/serving.pem')),
      holders: ['control-plane'],
    },
    ...(await caKeys(compose)),
  ];
}

async function caKeys(compose: Compose): Promise<readonly Secret[]> {
  const found = await compose.exec('ca', 'grep', '-rl', 'PRIVATE KEY', '/run/weft/ca');
  return Promise.all(
    found
      .split('\n')
      .filter((path) => path !== '')
      .map(async (path) => ({
        name: `the CA's ${path}`,
        text: keyBody(await compose.exec('ca', 'cat', path)),
        holders: ['ca'],
      })),
  );
}

/** Returns a line of a private key that no other file has. JSON has the line breaks in another form. */
function keyBody(pem: string): string {
  const lines = pem.replaceAll(String.raw`\n`, '\n');
  const body = /-----BEGIN [A-Z ]*PRIVATE KEY-----\n(?<first>.+)\n(?<second>.+)/.exec(
    lines,
  )?.groups;
  if (body === undefined) throw new Error('there is no private key');
  // All keys of a kind have the same first line, so take the second.
  return body['second'] ?? '';
}

/** Names the secrets in the environment and the readable files of a process of this service. */
export async function readableIn(
  compose: Compose,
  service: string,
  secrets: readonly Secret[],
): Promise<readonly string[]> {
  const script = 'find /run /tmp /opt/weft/.cache -type f -exec cat {} + 2>/dev/null; env';
  // The engine's socket folder is skipped; an unreadable file does not end the search.
  const said = await compose.exec(service, 'sh', '-c', `${script}; exit 0`);
  return secrets.filter(({ text }) => said.includes(text)).map(({ name }) => name);
}
