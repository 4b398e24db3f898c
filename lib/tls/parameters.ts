/** TLS rules of every connection that Weft makes or takes (docs/spec/hbone.md §2). */
import { constants } from 'node:crypto';

/** The lowest protocol version spoken, unless 1.2 is allowed. */
export const TLS_MIN_VERSION = 'TLSv1.3';

/** The suites offered, best first; no ChaCha20. */
export const TLS_CIPHERS = 'TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256';

/** Suites of TLS 1.2, where it is allowed. */
const TLS12_CIPHERS =
  'ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256';

/** The only group of a policy that demands post-quantum key exchange. */
const PQC_GROUP = 'X25519MLKEM768';

/**
 * Key exchange groups, best first. `?` skips one that OpenSSL lacks, `*` sends a key share for it at once, so that neither a
 * hybrid nor a classic peer costs another round trip; `/` parts those that go before the others.
 */
const GROUPS = `?*${PQC_GROUP}/?*X25519:?P-256:?P-384`;

/** A named set of algorithms that an operator demands (`COMPLIANCE_POLICY`). */
export type CompliancePolicy = 'pqc';

/** What an operator may choose. */
export interface TlsPolicy {
  readonly tls12: boolean;
  /** Null = none. */
  readonly compliance: CompliancePolicy | null;
}

/** Nothing chosen. */
export const DEFAULT_TLS_POLICY: TlsPolicy = { tls12: false, compliance: null };

/** Options for node:tls. */
export interface TlsParameters {
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  readonly maxVersion: 'TLSv1.3';
  readonly ciphers: string;
  readonly ecdhCurve: string;
  readonly secureOptions: number;
}

/** The options that carry a policy out. */
export function tlsParameters(policy: TlsPolicy): TlsParameters {
  return {
    minVersion: policy.tls12 ? 'TLSv1.2' : TLS_MIN_VERSION,
    maxVersion: 'TLSv1.3',
    ciphers: policy.tls12 ? `${TLS_CIPHERS}:${TLS12_CIPHERS}` : TLS_CIPHERS,
    ecdhCurve: policy.compliance === 'pqc' ? PQC_GROUP : GROUPS,
    // A resumed session carries no client certificate: a server with Node's defaults let such a client in.
    secureOptions: constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION,
  };
}
