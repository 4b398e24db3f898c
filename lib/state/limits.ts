/** Bounds of the state folder, each with its reason. */

/** Bytes of one slab of packed resources: large enough to make the per-slab cost vanish, small enough to copy in well under a millisecond. */
export const SLAB_BYTES = 1024 * 1024;

/** Decoded resources kept at hand: covers the endpoints of busy services; about 2 KB each. */
export const DECODED_CACHE_MAX = 8_192;

/** Ways to choose among the endpoints of a service that are remembered: its ports, from the few places a node's pods are in. */
export const REMEMBERED_PLANS_MAX = 64;

/** Asked-for addresses remembered so that a changed CIDR service invalidates them one by one; walking them takes about a millisecond. */
export const ASKED_ADDRESSES_MAX = 16_384;
