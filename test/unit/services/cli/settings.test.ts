import { readFile } from 'node:fs/promises';
import test from 'ava';
import { RETIRED_VARIABLES } from '../../../../lib/config/unknown-variables.ts';
import { ACTORS } from '../../../../services/local-mesh/actors.ts';
import { settings } from '../../../../services/cli/settings.ts';
import { SETTINGS_PAGE, settingsPage } from '../../../support/settings-page.ts';

test('docs/settings.md is what npm run docs writes', async (t) => {
  t.is(await readFile(SETTINGS_PAGE, 'utf8'), await settingsPage());
});

test('every variable says its default in words a user could write', async (t) => {
  for (const { title, lines } of await settings(ACTORS)) {
    t.true(lines.length > 0, title);
    for (const { name, fallback, description, when } of lines) {
      t.notRegex(fallback, /\[object|undefined|NaN/, `${title} ${name}`);
      t.true(description.length > 4, `${title} ${name}`);
      if (name.startsWith('WEFT_')) t.true((when ?? '').length > 4, `${title} ${name}`);
    }
  }
});

test('Weft has few settings of its own', async (t) => {
  const lines = (await settings(ACTORS)).flatMap((section) => section.lines);
  const names = new Set(lines.map(({ name }) => name).filter((name) => name.startsWith('WEFT_')));
  t.true(names.size <= 36, `${names.size} settings: retire one before you add one`);
  t.deepEqual(
    [...names].filter((name) => RETIRED_VARIABLES.has(name)),
    [],
    'no setting that is read is retired',
  );
});

test('required variables, defaults and optional ones are told apart', async (t) => {
  const lines = (await settings(['ca', 'cert-fetcher'])).flatMap((section) => section.lines);
  const of = (name: string): string | undefined =>
    lines.find((line) => line.name === name)?.fallback;
  t.is(of('REDIS_URL'), 'required');
  t.is(of('WEFT_TOKEN_JWKS_PATH'), 'optional');
  t.is(of('WEFT_LISTEN'), '[::]:15012');
  t.is(of('DEFAULT_WORKLOAD_CERT_TTL'), '24h');
  t.is(of('ROOT_CA_DIR'), 'optional');
});
