/** Tests that messages of earlier versions (`test/fixtures/messages`) keep their meaning. */
import { readdirSync } from 'node:fs';
import test from 'ava';
import { currentVersion, messageKinds, plain, storedSamples } from '../support/message-samples.ts';

const versions = readdirSync(new URL('../fixtures/messages', import.meta.url))
  .filter((file) => file.endsWith('.json'))
  .map((file) => file.slice(0, -'.json'.length));

for (const version of versions) {
  for (const [name, stored] of Object.entries(storedSamples(version))) {
    test(`${name} of version ${version} is read`, (t) => {
      const kind = messageKinds[name];
      t.truthy(kind, 'a kind that is gone is read for one minor version more');
      t.deepEqual(plain(kind?.decode(stored.encoded)), stored.decoded);
    });
  }
}

test('the samples of this version are kept, one of each kind', (t) => {
  t.true(versions.includes(currentVersion()), 'write them: node test/support/message-samples.ts');
  const stored = storedSamples(currentVersion());
  t.deepEqual(Object.keys(stored).sort(), Object.keys(messageKinds).sort());
});
