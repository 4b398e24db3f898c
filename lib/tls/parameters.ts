/** TLS rules of all connections of Weft (docs/spec/hbone.md §2). */
import { constants } from 'node:crypto';

/** The lowest protocol version, unless 1.2 is allowed. */
const TLS_MIN_VERSION = 'TLSv1.3';

/** Suites of TLS 1.3, best first; no ChaCha20. */
const TLS_CIPHERS = 'TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256';

/** Suites of TLS 1.2, if it is allowed. */
const TLS12_CIPHERS =
  'ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256';

/** The only group of the policy `pqc`. */
const PQC_GROUP = 'X25519MLKEM768';

/**
 * Key exchange groups, best first. `?` skips a group that OpenSSL lacks. `*` sends a key share at once, so that neither a
 * hybrid nor a classic peer costs another round trip. `/` separates groups of higher preference from the others.
 */
const GROUPS = `?*${PQC_GROUP}/?*X25519:?P-256:?P-384`;

/** A named set of algorithms that an operator demands (`COMPLIANCE_POLICY`). */
export type CompliancePolicy = 'pqc';

/** The TLS rules that an operator chooses. */
export interface TlsPolicy {
  readonly tls12: boolean;
  /** Null = none. */
  readonly compliance: CompliancePolicy | null;
}

/** The rules without settings. */
export const DEFAULT_TLS_POLICY: TlsPolicy = { tls12: false, compliance: null };

/** Options for node:tls. */
export interface TlsParameters {
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  readonly maxVersion: 'TLSv1.3';
  readonly ciphers: string;
  readonly ecdhCurve: string;
  readonly secureOptions: number;
}

/** Returns the options of a policy. */
export function tlsParameters(policy: TlsPolicy): TlsParameters {
  return {
    minVersion: policy.tls12 ? 'TLSv1.2' : TLS_MIN_VERSION,
    maxVersion: 'TLSv1.3',
    ciphers: policy.tls12 ? `${TLS_CIPHERS}:${TLS12_CIPHERS}` : TLS_CIPHERS,
    ecdhCurve: policy.compliance === 'pqc' ? PQC_GROUP : GROUPS,
    // A resumed session carries no client certificate, and a server with Node's defaults accepts such a client.
    secureOptions: constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION,
  };
}

/** A server's own certificate. */
export interface ServingCertificate {
  /** Leaf then intermediates, PEM. */
  readonly chainPem: string;
  /** PKCS#8, PEM. */
  readonly keyPem: string;
}

/** Returns the options of a server that shows this certificate. */
export function servingParameters(
  certificate: ServingCertificate,
  policy: TlsPolicy,
): TlsParameters & { readonly cert: string; readonly key: string } {
  return { cert: certificate.chainPem, key: certificate.keyPem, ...tlsParameters(policy) };
}
