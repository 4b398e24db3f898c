import { carriedEngine } from '../../../lib/hbone/engine-carried/engine.ts';
import { framingEngine } from '../../../lib/hbone/engine-framing/engine.ts';
import type { HboneEngine } from '../../../lib/hbone/engine.ts';
import type { ListenerSettings } from '../protocol/settings.ts';

/** Returns the engine that the settings choose (docs/decisions/native-carry.md). */
export function engineOf({ carry }: Pick<ListenerSettings, 'carry'>): HboneEngine {
  return carry === 'native' ? carriedEngine : framingEngine;
}
