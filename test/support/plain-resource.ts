import type { ServedResource } from '../../lib/xds/wire.ts';

/** A resource that no key but its name leads to. */
export function plainResource(name: string, version: string, bytes: Uint8Array): ServedResource {
  return { name, version, bytes, aliases: [], node: '', services: [], isService: false };
}
