/** Ends the TCP connections that a namespace had before its traffic was redirected. */
import { MeshError } from '../errors/mesh-error.ts';
import { addressesOf } from '../linux/netns.ts';
import { LISTING_TIMEOUT_MS } from './limits.ts';
import { runScript } from './run-script.ts';

const LOOPBACK = ['127.0.0.0/8', '[::1]'];
/** The proxy's own sockets have its mark. */
const NOT_PROXY = 'fwmark != 0x539/0xfff';
/** Sockets in TIME-WAIT carry nothing. */
const CONNECTED = 'state connected exclude time-wait';

/**
 * Ends every connection that leaves the namespace, except those of the proxy, so that both ends see a reset; returns their number.
 * Connections within the pod stay. Call it once the rules stand. Rejects with NETNS_RULES when some of them cannot be ended, as
 * in a kernel without CONFIG_INET_DIAG_DESTROY.
 */
export async function resetConnections(netnsFd: number): Promise<number> {
  const own = addressesOf(netnsFd).map((address) =>
    address.includes(':') ? `[${address}]` : address,
  );
  const inside = [...new Set([...LOOPBACK, ...own])]
    .map((address) => `dst ${address}`)
    .join(' or ');
  const filter = `not ( ${inside} ) and ${NOT_PROXY}`;
  const list = `ss -Hnte ${CONNECTED} '${filter}' | grep -o ' sk:[0-9a-f]*' || :`;
  const output = await runScript(
    `set -e\n${list}\nss -KHnt ${CONNECTED} '${filter}' >/dev/null\necho after\n${list}\n`,
    {
      enter: ['nsenter', `--net=/proc/${process.pid}/fd/${netnsFd}`],
      timeoutMs: LISTING_TIMEOUT_MS,
    },
  );
  const [before, after] = output.split('after').map((text) => text.match(/sk:\S+/g) ?? []);
  // A connection of the list that is there again is the same one: the kernel numbers sockets.
  const known = new Set(before);
  const left = (after ?? []).filter((socket) => known.has(socket)).length;
  if (left > 0) {
    throw new MeshError(
      'NETNS_RULES',
      `${left} connections from before the enrolment cannot be ended: the kernel needs CONFIG_INET_DIAG_DESTROY, or set WEFT_ENROL_EXISTING=keep`,
    );
  }
  return before?.length ?? 0;
}
