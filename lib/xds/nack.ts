/** Refusals of single resources, as the control plane is told (docs/spec/control.md §2.3). Pure. */

/** A resource that was not taken. */
export interface ResourceFailure {
  readonly name: string;
  readonly reason: string;
}

/** Longest text sent: gRPC servers cap the size of what they log, and istiod repeats it in its own log. */
const NACK_CHARS_MAX = 16_384;

/** `<name>: <reason>` of each failure, joined; null when there is none, which is an ACK. */
export function nackMessage(failures: readonly ResourceFailure[]): string | null {
  if (failures.length === 0) return null;
  const text = failures.map(({ name, reason }) => `${name}: ${reason}`).join('; ');
  return text.length <= NACK_CHARS_MAX ? text : `${text.slice(0, NACK_CHARS_MAX)}…`;
}
