/** Names of the alerts of TLS 1.3 (RFC 8446 §6) that end a connection. */
const ALERTS: Readonly<Record<number, string>> = {
  10: 'unexpected message',
  20: 'bad record mac',
  22: 'record overflow',
  40: 'handshake failure',
  42: 'bad certificate',
  43: 'unsupported certificate',
  44: 'certificate revoked',
  45: 'certificate expired',
  46: 'certificate unknown',
  47: 'illegal parameter',
  48: 'unknown ca',
  49: 'access denied',
  50: 'decode error',
  51: 'decrypt error',
  70: 'protocol version',
  71: 'insufficient security',
  80: 'internal error',
  90: 'user canceled',
  109: 'missing extension',
  112: 'unrecognized name',
  116: 'certificate required',
  120: 'no application protocol',
};

/** Returns an alert's number and, if it is known, its name. */
export function alertText(alert: number): string {
  const name = ALERTS[alert];
  return name === undefined ? `alert ${alert}` : `alert ${alert}, ${name}`;
}
