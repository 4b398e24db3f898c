/** Bounds of the DNS proxy of one pod on one thread, each with its reason. */

/** Queries in progress, forwarded or waiting for the mesh state; more are refused at once. About 1 kB each. */
export const MAX_QUERIES_IN_PROGRESS = 8_192;

/** Questions under way to name servers: each has a socket. */
export const MAX_FORWARDS = 128;

/** Questions that wait for their turn. A burst of 5,000 new names must fit; more would wait longer than their clients do. */
export const MAX_WAITING_FORWARDS = 6_000;

/** For one forwarded query in all; its client has given up by then. */
export const FORWARD_DEADLINE_MS = 10_000;

/** TCP connect to a name server (docs/spec/dns.md §5). */
export const FORWARD_CONNECT_MS = 5_000;

/** How long a name server that failed is asked last. */
export const SERVER_AVOIDED_MS = 10_000;

/** Without a whole query or an answer for this long a TCP connection ends (docs/spec/dns.md §1). */
export const TCP_IDLE_MS = 5_000;

/** TCP connections of clients; a resolver has one or two. */
export const MAX_TCP_CLIENTS = 256;

/** Unanswered queries of one TCP connection; reading pauses there. */
export const MAX_QUERIES_PER_TCP_CLIENT = 64;

/** Wanted receive buffer of a UDP listener: the kernel takes twice as much, which holds 5,000 small queries. */
export const UDP_RECEIVE_BUFFER_BYTES = 2_097_152;

/** Label sets of the DNS metrics of one thread; what comes after is counted as unknown. */
export const MAX_DNS_LABEL_SETS = 5_000;

/** Between two looks at whether resolv.conf or the hosts file changed. */
export const FILE_CHECK_MS = 5_000;

/** Characters of such a file that are looked at; a longer one is something else. */
export const MAX_FILE_CHARACTERS = 65_536;
