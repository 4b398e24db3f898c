import { FOLLOW_BLOCK_MS } from './limits.ts';

/** The part of {@link FOLLOW_BLOCK_MS} by which blocking reads differ. */
const SPREAD = 0.4;

/**
 * Draws the longest wait of one blocking read, milliseconds. Readers that started together would else check their positions
 * together ever after, in all processes of the mesh.
 */
export function blockTimeMs(): number {
  return Math.round(FOLLOW_BLOCK_MS * (1 - SPREAD * Math.random()));
}
