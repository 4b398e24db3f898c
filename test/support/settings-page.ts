/** Generates docs/settings.md from the schemas that read the variables; `npm run docs` writes it. */
import { writeFile } from 'node:fs/promises';
import { RETIRED_VARIABLES } from '../../lib/config/unknown-variables.ts';
import { ACTORS } from '../../services/local-mesh/actors.ts';
import { settings } from '../../services/cli/settings.ts';

/** The location of the page. */
export const SETTINGS_PAGE = new URL('../../docs/settings.md', import.meta.url);

const HEAD = `# Settings

Every variable each actor reads. Made by \`npm run docs\` from the schemas in \`services/*/config.ts\`; \`weft run <actor> --help\`
prints the same. An empty variable counts as absent. Durations are written \`500ms\`, \`5s\`, \`1m30s\`, \`24h\`; bytes as a number or with
\`KiB\`, \`MiB\`, \`GiB\`. A \`WEFT_*\` name that no actor of the process knows is an error, with the nearest name that is known.
\`ISTIO_META_*\`, \`ISTIO_METAJSON_*\`, \`XDS_HEADER_*\` and \`CA_HEADER_*\` are read by prefix, as upstream reads them.
`;

/** Generates the page. */
export async function settingsPage(): Promise<string> {
  const sections = await settings(ACTORS);
  const parts = sections.map(({ title, lines }) => {
    const rows = lines.map(
      ({ name, fallback, description, when }) =>
        `| \`${name}\` | ${cell(fallback)} | ${cell(description)} | ${cell(when ?? '')} |`,
    );
    return [
      `## ${title}`,
      '',
      '| Variable | Default | Meaning | Change it when |',
      '|---|---|---|---|',
      ...rows,
    ].join('\n');
  });
  const retired = [...RETIRED_VARIABLES].map((name) => `\`${name}\``).join(', ');
  return `${HEAD}\nRetired in this release, and accepted without effect until the next: ${retired}.\n\n${parts.join('\n\n')}\n`;
}

function cell(text: string): string {
  return text.replaceAll('|', String.raw`\|`);
}

if (import.meta.main) await writeFile(SETTINGS_PAGE, await settingsPage());
