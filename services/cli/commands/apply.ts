import type { Command } from 'commander';
import { manifestOptions, objectName, openManifests } from '../manifest-command.ts';
import type { ManifestOptions } from '../manifest-command.ts';
import { write } from '../output.ts';

const HELP = `
Kinds: Namespace, Pod, Service, ServiceAccount, ServiceEntry, WorkloadEntry, AuthorizationPolicy, PeerAuthentication.
Invalid input is refused whole; every problem is named with file, document index (from 0), field path and reason.`;

/** Adds `weft apply`. */
export function register(command: Command): void {
  manifestOptions(command).addHelpText('after', HELP).action(apply);
}

async function apply(options: ManifestOptions): Promise<void> {
  const { api, documents } = await openManifests(options);
  for (const object of await api.apply(documents)) {
    await write(`${objectName(object)} ${object.result ?? 'configured'}\n`);
  }
}
