/** What the servers of the soak speak, and what its clients print. */

/** Ports of the servers, one behaviour each. */
export const PORTS = {
  /** Sends back what it gets; ends when the client has ended. */
  echo: 9_001,
  /** Greets first, then echoes. */
  serverFirst: 9_002,
  /** Reads a line with a number, sends as many bytes, ends. */
  source: 9_003,
  /** Reads to the end of the client's bytes, answers their number, ends. */
  sink: 9_004,
  /** Sends some bytes and resets the connection. */
  reset: 9_005,
  /** Reads nothing for a while, then like `sink`. */
  stall: 9_006,
} as const;

/** What a `serverFirst` server says. */
export const GREETING = 'READY\n';
/** How long a `stall` server does not read. */
export const STALL_MS = 1_500;

/** Exchanges that both sides finish in good order: not one may fail. */
export const ORDERLY = ['small', 'down', 'up', 'serverFirst', 'halfClose', 'stall'] as const;
/** Exchanges that one side breaks off on purpose. */
export const ROUGH = ['clientReset', 'serverReset', 'abandon'] as const;

/** The name of an exchange. */
export type Exchange = (typeof ORDERLY)[number] | (typeof ROUGH)[number];

/** One line of a client: its counts so far, or an exchange that went wrong. */
export type SoakLine =
  | { readonly counts: Readonly<Partial<Record<Exchange, number>>> }
  | { readonly failure: { readonly exchange: Exchange; readonly reason: string } };
