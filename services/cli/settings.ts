/** Describes the variables that actors read, as text. */
import { hostConfig } from '../../lib/actor/host-config.ts';
import { describeVariables } from '../../lib/config/spec.ts';
import type { VariableLine } from '../../lib/config/spec.ts';
import { loadActor } from '../local-mesh/actors.ts';
import type { ActorName } from '../local-mesh/actors.ts';
import { textTable } from './text-table.ts';

/** The variables of the host and of each actor, by title. */
export async function settings(
  actors: readonly ActorName[],
): Promise<readonly { readonly title: string; readonly lines: readonly VariableLine[] }[]> {
  const definitions = await Promise.all(actors.map(loadActor));
  return [
    { title: 'every actor', lines: describeVariables(hostConfig) },
    ...definitions.map(({ name, config }) => ({ title: name, lines: describeVariables(config) })),
  ];
}

/** {@link settings} as aligned text. */
export async function settingsText(actors: readonly ActorName[]): Promise<string> {
  const sections = await settings(actors);
  return sections
    .map(({ title, lines }) => {
      const rows = lines.map((line) => [
        line.name,
        line.fallback,
        line.when === null ? line.description : `${line.description}; change it when ${line.when}`,
      ]);
      return textTable([`Variables of ${title}`, 'DEFAULT', 'MEANING'], rows).join('\n');
    })
    .join('\n\n')
    .concat('\n');
}
