/** Real streams: after any changes, disconnects and NACKs a client holds what the server serves. */
import test from 'ava';
import * as fc from 'fast-check';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import type { ServedResource } from '../../../lib/xds/wire.ts';
import { followDelta } from '../../support/delta-follower.ts';
import { serveDelta } from '../../support/delta-server-kit.ts';
import { plainResource } from '../../support/plain-resource.ts';
import { until } from '../../support/until.ts';

const RUNS = 12;
const CONTENT_BYTES = 400;

const TYPES = [ADDRESS_TYPE, AUTHORIZATION_TYPE] as const;
const name = fc.nat({ max: 11 }).map((index) => `name-${index}`);
const resource = fc.record({ of: name, type: fc.constantFrom(...TYPES) });
const step = fc.oneof(
  { weight: 4, arbitrary: resource.map((each) => ({ do: 'set', ...each }) as const) },
  { weight: 2, arbitrary: resource.map((each) => ({ do: 'remove', ...each }) as const) },
  { weight: 3, arbitrary: fc.constant({ do: 'push' } as const) },
  { weight: 1, arbitrary: fc.constant({ do: 'disconnect' } as const) },
  { weight: 1, arbitrary: name.map((of) => ({ do: 'refuse', of }) as const) },
);

test('a client ends with the state of a fresh one', async (t) => {
  const held = new Map<ResourceType, Map<string, ServedResource>>(
    TYPES.map((type) => [type, new Map()]),
  );
  // Small responses, so that most answers have several parts.
  const { delta, open, target, metrics } = await serveDelta(t, held, { maxResponseBytes: 1_500 });
  let version = 0;
  const run = async (steps: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[]) => {
    const refused = new Set<string>();
    const follower = followDelta(
      t,
      () => open(target.token ?? ''),
      (each) => refused.has(each),
    );
    const changed = new Map(TYPES.map((type) => [type, new Set<string>()]));
    const push = async (): Promise<void> => {
      await delta.push(new Map([...changed].map(([type, names]) => [type, new Set(names)])));
      for (const names of changed.values()) names.clear();
    };
    const change = (type: ResourceType, of: string, exists: boolean): void => {
      version += 1;
      changed.get(type)?.add(of);
      const content = Buffer.alloc(CONTENT_BYTES);
      if (exists) held.get(type)?.set(of, plainResource(of, String(version), content));
      else held.get(type)?.delete(of);
    };
    const live = (): Promise<true> =>
      until(() => follower.client.live || null, { what: 'a stream that is in step' });
    await live();
    // Each run has at least one NACK.
    refused.add('name-0');
    change(ADDRESS_TYPE, 'name-0', true);
    await push();
    await until(() => follower.lines.some(({ message }) => message === 'xds.nacked'), {
      what: 'the NACK',
    });
    for (const each of steps) {
      if (each.do === 'push') await push();
      else if (each.do === 'refuse') refused.add(each.of);
      else if (each.do === 'disconnect') {
        await live();
        follower.client.reopen();
      } else change(each.type, each.of, each.do === 'set');
    }
    await push();
    // A refused resource is sent again when the client resumes.
    refused.clear();
    follower.client.reopen();
    for (const [type, resources] of held) {
      const versions = (): string => shown(follower.held.get(type) ?? new Map());
      const wanted = shown(new Map([...resources].map(([key, value]) => [key, value.version])));
      await until(() => versions() === wanted, { what: `${wanted}, has ${versions()}` });
    }
    await follower.client.close();
  };
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), run), {
    numRuns: RUNS,
  });
  const nacks = /pilot_total_xds_rejects\{type="WDS"\} (\d+)/.exec(await metrics())?.[1];
  t.true(Number(nacks) >= RUNS);
});

function shown(versions: ReadonlyMap<string, string>): string {
  return [...versions]
    .map(([key, version]) => `${key}=${version}`)
    .sort()
    .join(' ');
}
