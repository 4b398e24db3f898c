/** Bounds of the state folder, each with its reason. */

/** Bytes of one slab of packed resources: large enough that its own cost does not count, small enough to copy in well under a millisecond. */
export const SLAB_BYTES = 1024 * 1024;

/** Decoded resources in the cache, about 2 KB each: enough for the endpoints of busy services. */
export const DECODED_CACHE_MAX = 8_192;

/** Plans remembered for a service: one for each of its ports, from each of the few places of a node's pods. */
export const REMEMBERED_PLANS_MAX = 64;

/** Addresses of lookups remembered, so that a changed CIDR service invalidates single answers; a walk takes about a millisecond. */
export const ASKED_ADDRESSES_MAX = 16_384;
