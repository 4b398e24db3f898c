/** Pure: the container that takes the place of another, of the same service and with the image as it is now. */
import { GROUP_VARIABLE } from './container-actors.ts';
import type { ContainerDetails } from './engine.ts';

const NUMBER_LABEL = 'com.docker.compose.container-number';
/** What a container has of its image unless it says otherwise; a new image may say something else. */
const FROM_IMAGE = [
  'Cmd',
  'Entrypoint',
  'WorkingDir',
  'User',
  'Healthcheck',
  'StopSignal',
] as const;

/** What the new one is to be. */
export interface ReplacementOptions {
  /** The old one's image as it was. */
  readonly image: Readonly<Record<string, unknown>>;
  readonly number: number;
  /** A proxy's generation; null for what has none. */
  readonly group: number | null;
}

/** The body of the engine's question for a new container. */
export function replacementOf(
  old: ContainerDetails,
  { image, number, group }: ReplacementOptions,
): Record<string, unknown> {
  const config: Record<string, unknown> = { ...old.Config };
  for (const key of FROM_IMAGE) {
    if (JSON.stringify(config[key]) === JSON.stringify(image[key])) delete config[key];
  }
  // A name of its own is the engine's to choose, and none may be chosen in another's network.
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
