import type { Prefix } from '../../../lib/net/prefix.ts';

/** Ranges that virtual addresses are allocated from. */
export interface AddressRanges {
  readonly serviceV4: Prefix;
  readonly serviceV6: Prefix;
  readonly entryV4: Prefix;
  readonly entryV6: Prefix;
}
