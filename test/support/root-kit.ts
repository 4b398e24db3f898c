/** The CA under test, and what tests of its root ask of it. */
import type { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../lib/clock/clock.ts';
import { requestFor } from '../../lib/identity/csr.ts';
import { parseCaAnswer } from '../../lib/identity/workload-certificate.ts';
import { parseCertificates } from '../../lib/tls/pem.ts';
import { folderStores } from '../../services/ca/stores.ts';
import type { CaStores } from '../../services/ca/stores.ts';
import { keptLog } from './actor-context.ts';
import type { CaKit } from './ca-kit.ts';
import { nodePod, podObject } from './pods-api.ts';

/** Identity of a pod on node-1. */
export const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
/** Identity of a pod on node-2. */
export const API = 'spiffe://cluster.local/ns/demo/sa/api';
/** The pods of these two, one on node-3, and its proxy. */
export const PODS = [
  podObject('demo', 'web-1', { node: 'node-1', account: 'web' }),
  podObject('demo', 'api-1', { node: 'node-2', account: 'api' }),
  podObject('demo', 'old-1', { node: 'node-3', account: 'old' }),
  nodePod('node-3'),
];
/** The rules of the CA. */
export const RULES = { trustDomain: 'cluster.local', settleMs: 500 };
const never = new AbortController().signal;

/** The stores of the CA, as `weft ca` opens them. */
export function storesOf(kit: CaKit, pluggedDir: string | null = null): CaStores {
  return folderStores(
    { stateDir: join(kit.dir, 'state'), rootBundleFile: kit.bundlePath, pluggedDir },
    { clock: systemClock, log: keptLog('test').log },
  );
}

/** Asks as a proxy does that reports no roots; the leaf. */
export async function ask(kit: CaKit, identity: string, seconds: number): Promise<X509Certificate> {
  const node = identity === API ? 'node-2' : identity === WEB ? 'node-1' : 'node-3';
  const client = await kit.client(await kit.nodeToken(node));
  const { csrPem } = await requestFor(identity);
  const chain = await client.createCertificate(
    { csr: csrPem, validitySeconds: seconds, impersonated: identity },
    never,
  );
  client.close();
  return parseCaAnswer(chain).leaf;
}

/** Fingerprints of the roots in a bundle. */
export async function rootsIn(path: string): Promise<string[]> {
  const roots = parseCertificates(await readFile(path, 'utf8'), path);
  return roots.map((root) => root.fingerprint256);
}
