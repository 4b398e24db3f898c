import { configInvalid } from '../config/define-config.ts';
import { bool, oneOf } from '../config/fields.ts';
import type { CompliancePolicy, TlsPolicy } from './parameters.ts';

/** Settings of TLS, the same for every actor. */
export const tlsVariables = {
  TLS12_ENABLED: {
    schema: bool({ default: false }),
    description: 'allow TLS 1.2 besides 1.3',
  },
  COMPLIANCE_POLICY: {
    schema: oneOf('pqc')({ optional: true }),
    description: 'pqc: TLS 1.3 with the key exchange X25519MLKEM768 and nothing else',
  },
} as const;

/** Returns the TLS rules of the values. Throws CONFIG_INVALID for settings that contradict each other. */
export function tlsPolicy(values: {
  readonly TLS12_ENABLED: boolean;
  readonly COMPLIANCE_POLICY: CompliancePolicy | null;
}): TlsPolicy {
  if (values.TLS12_ENABLED && values.COMPLIANCE_POLICY !== null) {
    throw configInvalid([
      `TLS12_ENABLED contradicts COMPLIANCE_POLICY=${values.COMPLIANCE_POLICY}, which TLS 1.2 cannot satisfy`,
    ]);
  }
  return { tls12: values.TLS12_ENABLED, compliance: values.COMPLIANCE_POLICY };
}
