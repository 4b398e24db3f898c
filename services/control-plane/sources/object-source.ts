import type { StoreListener } from '../store/object-store.ts';
import type { CommittedState } from '../store/state.ts';

/** Where the objects of the mesh come from. */
export interface ObjectSource {
  /** The current objects. */
  readonly objects: CommittedState;
  /** True while the objects hold only a part of a change that belongs together. */
  readonly publishing: boolean;
  /** Calls `listener` with each change, after it is in {@link objects}; the result unsubscribes. */
  onCommit(listener: StoreListener): () => void;
  /** Resolves once the objects are complete. Nothing is served before. */
  synced(): Promise<void>;
}
