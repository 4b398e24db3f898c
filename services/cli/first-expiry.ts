/** The certificate of a mesh that expires first. */
import type { CertificateRecord } from '../../lib/identity/certificate-records.ts';

const MS_PER_HOUR = 3_600_000;

/** A certificate in use, and how long it lasts. */
export interface FirstExpiry {
  readonly identity: string;
  readonly node: string;
  /** Negative when it has expired; one decimal place. */
  readonly hours: number;
}

/** Finds it; null when no node has a certificate. */
export function firstExpiry(
  records: readonly Pick<CertificateRecord, 'identity' | 'node' | 'notAfter'>[],
  nowMs: number,
): FirstExpiry | null {
  let first: FirstExpiry | null = null;
  for (const { identity, node, notAfter } of records) {
    if (notAfter === null) continue;
    const hours = Math.round(((Date.parse(notAfter) - nowMs) / MS_PER_HOUR) * 10) / 10;
    if (first === null || hours < first.hours) first = { identity, node, hours };
  }
  return first;
}

/** One line about it. */
export function expiryLine({ identity, node, hours }: FirstExpiry): string {
  const when = hours < 0 ? `expired ${-hours} h ago` : `expires in ${hours} h`;
  return `the first certificate ${when}: ${identity} on ${node}`;
}
