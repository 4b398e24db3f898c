/** The output forms of certificates: `weft get certificates` and Istio's `/config_dump` (docs/spec/istiod-ambient.md §6). */
import type { MeshError } from '../errors/mesh-error.ts';
import { parseCertificates } from '../tls/pem.ts';
import type { WorkloadCertificate } from './workload-certificate.ts';

/** One line of `weft get certificates`; fields are null without a certificate. */
export interface CertificateRecord {
  readonly identity: string;
  readonly node: string;
  readonly serial: string | null;
  /** RFC 3339. */
  readonly notBefore: string | null;
  readonly notAfter: string | null;
  /** `Initializing`, `Available` or `Unavailable: <reason>` (docs/spec/control.md §5.4). */
  readonly state: string;
}

/** One entry of `certificates` in a config dump. */
export interface CertificateDump {
  readonly identity: string;
  readonly state: string;
  readonly certChain: readonly DumpedCertificate[];
  readonly rootCerts: readonly DumpedCertificate[];
}

/** A certificate in a config dump. */
export interface DumpedCertificate {
  readonly pem: string;
  /** Decimal. */
  readonly serialNumber: string;
  /** RFC 3339. */
  readonly validFrom: string;
  readonly expirationTime: string;
}

/** The state of an identity in Istio's words. */
export function stateText(usable: boolean, error: MeshError | null): string {
  if (usable) return 'Available';
  return error === null ? 'Initializing' : `Unavailable: ${error.message}`;
}

/** The record of an identity. */
export function recordOf(
  identity: string,
  node: string,
  certificate: WorkloadCertificate | null,
  state: string,
): CertificateRecord {
  return {
    identity,
    node,
    serial: certificate?.serialNumber ?? null,
    notBefore: certificate === null ? null : rfc3339(certificate.notBeforeMs),
    notAfter: certificate === null ? null : rfc3339(certificate.notAfterMs),
    state,
  };
}

/** The dump of an identity. */
export function dumpOf(
  identity: string,
  certificate: WorkloadCertificate | null,
  state: string,
): CertificateDump {
  return {
    identity,
    state,
    certChain: certificate === null ? [] : dumped(certificate.chainPem),
    rootCerts: certificate === null ? [] : dumped(certificate.rootsPem),
  };
}

function dumped(pem: string): DumpedCertificate[] {
  return parseCertificates(pem, 'a certificate in use').map((certificate) => ({
    pem: Buffer.from(certificate.toString()).toString('base64'),
    serialNumber: BigInt(`0x${certificate.serialNumber}`).toString(),
    validFrom: rfc3339(certificate.validFromDate.getTime()),
    expirationTime: rfc3339(certificate.validToDate.getTime()),
  }));
}

/** Times are whole seconds, as in certificates. */
function rfc3339(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d{3}Z$/, 'Z');
}
