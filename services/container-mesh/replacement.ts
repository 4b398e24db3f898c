/** Describes the replacement of a container: the same service with the current image. Pure. */
import { GROUP_VARIABLE } from './container-actors.ts';
import type { ContainerDetails } from '../../lib/docker/engine-view.ts';

const NUMBER_LABEL = 'com.docker.compose.container-number';
/** Fields that a container takes from its image by default; a new image may change them. */
const FROM_IMAGE = [
  'Cmd',
  'Entrypoint',
  'WorkingDir',
  'User',
  'Healthcheck',
  'StopSignal',
] as const;

/** Settings of the new container. */
export interface ReplacementOptions {
  /** The image of the old container. */
  readonly image: Readonly<Record<string, unknown>>;
  readonly number: number;
  /** A proxy's generation; null for other actors. */
  readonly group: number | null;
}

/** The body of the request that creates the container. */
export function replacementOf(
  old: ContainerDetails,
  { image, number, group }: ReplacementOptions,
): Record<string, unknown> {
  const config: Record<string, unknown> = { ...old.Config };
  for (const key of FROM_IMAGE) {
    if (JSON.stringify(config[key]) === JSON.stringify(image[key])) delete config[key];
  }
  // The engine chooses the host name; a container in another's network may not have one.
  delete config['Hostname'];
  const inherited = new Set(strings(image['Env']));
  const env = strings(config['Env']).filter(
    (line) => !inherited.has(line) && (group === null || !line.startsWith(`${GROUP_VARIABLE}=`)),
  );
  const labels = Object.entries({ ...old.Config.Labels }).filter(
    ([name, value]) => (image['Labels'] as Record<string, string> | undefined)?.[name] !== value,
  );
  return {
    ...config,
    Env: group === null ? env : [...env, `${GROUP_VARIABLE}=${group}`],
    Labels: { ...Object.fromEntries(labels), [NUMBER_LABEL]: String(number) },
    HostConfig: old.HostConfig,
    ...networks(old),
  };
}

function networks(old: ContainerDetails): Record<string, unknown> {
  if (/^(?:container:|none$|host$)/.test(old.HostConfig.NetworkMode ?? '')) return {};
  const own = old.Id.slice(0, 12);
  const endpoints = Object.entries(old.NetworkSettings.Networks).map(
    ([name, { IPAMConfig, Aliases }]) => [
      name,
      { IPAMConfig, Aliases: (Aliases ?? []).filter((alias) => alias !== own) },
    ],
  );
  return { NetworkingConfig: { EndpointsConfig: Object.fromEntries(endpoints) } };
}

function strings(value: unknown): readonly string[] {
  return Array.isArray(value) ? (value as string[]) : [];
}
