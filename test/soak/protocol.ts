/** The protocol of the soak's servers, and the lines that its clients print. */

/** Ports of the servers, one behaviour each. */
export const PORTS = {
  /** Echoes; ends when the client has ended. */
  echo: 9_001,
  /** Greets first, then echoes. */
  serverFirst: 9_002,
  /** Reads a line with a number, sends that many bytes, ends. */
  source: 9_003,
  /** Reads to the end of the client's bytes, sends their number, ends. */
  sink: 9_004,
  /** Sends some bytes and resets the connection. */
  reset: 9_005,
  /** Reads nothing for a while, then acts like `sink`. */
  stall: 9_006,
} as const;

/** The greeting of a `serverFirst` server. */
export const GREETING = 'READY\n';
/** The time for which a `stall` server does not read. */
export const STALL_MS = 1_500;

/** Exchanges that both sides finish in order; none may fail. */
export const ORDERLY = ['small', 'down', 'up', 'serverFirst', 'halfClose', 'stall'] as const;
/** Exchanges that one side aborts on purpose. */
export const ROUGH = ['clientReset', 'serverReset', 'abandon'] as const;

/** The name of an exchange. */
export type Exchange = (typeof ORDERLY)[number] | (typeof ROUGH)[number];

/** One line of a client: its counts so far, or a failed exchange. */
export type SoakLine =
  | { readonly counts: Readonly<Partial<Record<Exchange, number>>> }
  | { readonly failure: { readonly exchange: Exchange; readonly reason: string } };
