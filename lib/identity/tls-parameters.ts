/** TLS rules of every connection that Weft makes or takes (spec/hbone.md §2). */

/** The lowest protocol version spoken. */
export const TLS_MIN_VERSION = 'TLSv1.3';

/** The suites offered, best first; no ChaCha20. */
export const TLS_CIPHERS = 'TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256';
