/**
 * Tests that Weft's control plane gives the same workloads, services, policies and status conditions as istiod for the same objects,
 * row by row:
 * spec: istiod-ambient.md §1.1, spec: istiod-ambient.md §1.2, spec: istiod-ambient.md §1.3, spec: istiod-ambient.md §1.4,
 * spec: istiod-ambient.md §1.5, spec: istiod-ambient.md §1.6, spec: istiod-ambient.md §1.7, spec: istiod-ambient.md §2.1,
 * spec: istiod-ambient.md §2.2, spec: istiod-ambient.md §2.3, spec: istiod-ambient.md §2.4.
 */
import { isDeepStrictEqual } from 'node:util';
import { present } from '../../lib/errors/assert.ts';
import { startControlPlane } from '../kubernetes/support/control-plane.ts';
import type { Cluster } from '../kubernetes/support/cluster.ts';
import { ownPort } from '../support/ports.ts';
import { until } from '../support/until.ts';
import type { Comparison, Objects, Resources } from './rows/comparison.ts';
import { plannedConditions, provokeMissing, writtenConditions } from './rows/conditions.ts';
import type { Conditions } from './rows/conditions.ts';
import { meshStates } from './rows/settings.ts';
import { istioSuite, readerToken } from './support/istio-cluster.ts';
import { ISTIOD_NAME, ROOT_NAMESPACE } from './support/istiod.ts';
import { viewMesh } from './support/mesh-view.ts';

/** Istiod writes a status within a second; what lacks one for longer has been given up. */
const PROVOCATION_MS = 10_000;

/** The conditions of the objects of a namespace that differ. */
interface Disagreement {
  readonly namespace: string;
  readonly weft: Conditions;
  readonly istiod: Conditions;
}

/** The namespaces of each comparison that has been made before. */
const placed = new Map<Comparison, readonly string[]>();

await istioSuite('istiod-rows', (test) => {
  for (const state of meshStates) {
    test(`both control planes give the same: ${state.title}`, async (t, { cluster, istiod }) => {
      t.teardown(() => state.undo?.(cluster));
      await applyAll(cluster, state.objects);
      for (const comparison of state.comparisons) {
        if (!placed.has(comparison)) placed.set(comparison, await place(cluster, comparison));
      }
      await istiod.use(state.environment ?? {});
      const port = await ownPort();
      const plane = await startControlPlane(t, cluster, {
        rootNamespace: ROOT_NAMESPACE,
        environment: {
          ...state.environment,
          WEFT_LISTEN: `127.0.0.1:${port}`,
        },
      });
      await plane.ready();
      const token = await readerToken(cluster);
      const ours = await viewMesh(
        t,
        { address: `https://127.0.0.1:${port}`, rootCa: plane.ca.bundlePath, name: null },
        token,
      );
      const theirs = await viewMesh(
        t,
        { address: istiod.address, rootCa: istiod.rootPath, name: ISTIOD_NAME },
        token,
      );
      const same = (resources: Resources): Resources => resources;
      const written = (conditions: Conditions): Conditions => conditions;
      const parts = [
        {
          title: 'the root namespace',
          names: [ROOT_NAMESPACE, ...(state.namespaces ?? [])],
          expected: state.deviation ?? same,
          conditions: written,
        },
        ...state.comparisons.map((comparison) => ({
          title: comparison.title,
          names: present(placed.get(comparison), 'it was placed'),
          expected: comparison.deviation?.bind(comparison) ?? same,
          conditions: comparison.conditions?.bind(comparison) ?? written,
        })),
      ].flatMap(({ title, names, expected, conditions }) =>
        names.map((namespace, index) => ({
          title: `${title} (${namespace})`,
          namespace,
          conditions: (had: Conditions) => conditions(had, index > 0),
          weft: () => ours(namespace),
          istiod: () => expected(theirs(namespace)),
        })),
      );
      const differing = (): typeof parts =>
        parts.filter((part) => !isDeepStrictEqual(part.weft(), part.istiod()));
      // This control plane has read every object before it serves, so agreement means that istiod has, too.
      try {
        await until(() => differing().length === 0, { what: 'the control planes to agree' });
      } catch (error) {
        const told = differing();
        const by = (side: 'weft' | 'istiod') => told.map((part) => [part.title, part[side]()]);
        t.deepEqual(Object.fromEntries(by('weft')), Object.fromEntries(by('istiod')));
        throw error;
      }
      const otherwise = async (): Promise<Readonly<Record<string, Disagreement>>> => {
        const [planned, had] = [await plannedConditions(plane), await writtenConditions(cluster)];
        const told = parts.map(({ title, namespace, conditions }) => {
          const [weft, istiod] = [planned(namespace), conditions(had(namespace))];
          return [title, { namespace, weft, istiod }] as const;
        });
        return Object.fromEntries(
          told.filter(([, { weft, istiod }]) => !isDeepStrictEqual(weft, istiod)),
        );
      };
      let provokedMs = performance.now();
      const agreed = async (): Promise<boolean> => {
        const told = Object.values(await otherwise());
        if (told.length > 0 && performance.now() - provokedMs > PROVOCATION_MS) {
          provokedMs = performance.now();
          for (const { namespace, weft, istiod: had } of told) {
            await provokeMissing(cluster, namespace, { wanted: weft, had });
          }
        }
        return told.length === 0;
      };
      await until(agreed, { what: 'the conditions to agree' }).catch(async (error: unknown) => {
        t.deepEqual(await otherwise(), {});
        throw error;
      });
      t.regex(JSON.stringify(theirs(ROOT_NAMESPACE)), state.shows ?? /Pod/);
      t.true(parts.some((part) => Object.keys(part.istiod()).length > 3));
    });
  }
});

/** Makes the namespaces and objects of a comparison; returns the names of the namespaces. */
async function place(cluster: Cluster, comparison: Comparison): Promise<readonly string[]> {
  const { labels, annotations, second } = comparison;
  const names = [await cluster.namespace('row', labels, annotations)];
  if (second !== undefined)
    names.push(await cluster.namespace('second', second.labels, second.annotations));
  const [first = '', other = ''] = names;
  const stored = await applyAll(cluster, comparison.objects(first, other));
  await comparison.later?.(cluster, stored);
  return names;
}

async function applyAll(cluster: Cluster, objects: Objects): ReturnType<Cluster['apply']> {
  const stored = [];
  for (const object of objects) {
    const found =
      typeof object === 'string' ? await cluster.applyText(object) : await cluster.apply(object);
    stored.push(...found);
  }
  return stored;
}
