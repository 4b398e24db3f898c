import type { HboneEngine } from '../../lib/hbone/engine.ts';
import type { HboneEngineName } from './protocol.ts';

/** The engine of that name. Only it is loaded: node:http2 takes memory in every thread. */
export async function loadEngine(name: HboneEngineName): Promise<HboneEngine> {
  return name === 'http2'
    ? (await import('../../lib/hbone/engine-http2/engine.ts')).http2Engine
    : (await import('../../lib/hbone/engine-framing/engine.ts')).framingEngine;
}
