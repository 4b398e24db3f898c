/** Names what certificates tell of the CA and of clocks. Pure. */
import type { CertificateRecord } from '../../lib/identity/certificate-records.ts';

const UNAVAILABLE = 'Unavailable: ';
/** Words of gRPC and of the network for a CA that does not answer. */
const UNREACHABLE =
  /UNAVAILABLE|ECONN|EHOST|ENOENT|ENOTFOUND|EAI_AGAIN|DEADLINE|no connection|no answer/i;

/** A finding about a node. */
export interface CertificateFinding {
  readonly pod: null;
  readonly cause: string;
  readonly detail: string;
}

/** Returns a finding for each identity of a node's proxy without a usable certificate. */
export function certificateFindings(
  records: readonly CertificateRecord[],
  nowMs: number,
): readonly CertificateFinding[] {
  return records.flatMap(({ identity, state, notBefore, notAfter }) => {
    if (state.startsWith(UNAVAILABLE)) {
      const reason = state.slice(UNAVAILABLE.length);
      const cause = UNREACHABLE.test(reason) ? 'CA unreachable' : 'no certificate';
      return [finding(cause, `${identity}: ${reason}`)];
    }
    if (notBefore !== null && Date.parse(notBefore) > nowMs) {
      return [finding('clock skew', `the certificate of ${identity} begins at ${notBefore}`)];
    }
    if (notAfter !== null && Date.parse(notAfter) < nowMs) {
      return [finding('no certificate', `that of ${identity} has ended at ${notAfter}`)];
    }
    return [];
  });
}

function finding(cause: string, detail: string): CertificateFinding {
  return { pod: null, cause, detail };
}
