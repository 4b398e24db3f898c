/** The texts of the admin and debug pages. They are made piece by piece, because a mesh has a hundred thousand resources. */
import type { DeltaServer } from '../../lib/xds/delta-server.ts';
import type { StreamView } from '../../lib/xds/delta-session.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../lib/xds/type-urls.ts';
import type { ServedResource } from '../../lib/xds/wire.ts';
import type { MeshMap } from './mapping/mesh-map.ts';
import { conditionsOf } from './policy/conditions.ts';
import type { ObjectView } from './sources/object-source.ts';

/** The parts of the control plane that the pages show. */
export interface PageSources {
  readonly delta: DeltaServer;
  readonly objects: ObjectView;
  readonly map: Pick<MeshMap, 'statuses'>;
}

/** `{workloads, services}`. */
export function* addressesPage({ delta }: PageSources): Generator<string> {
  const resources = (services: boolean): Iterable<ServedResource> =>
    filtered(delta.resources(ADDRESS_TYPE), ({ isService }) => isService === services);
  yield '{"workloads":';
  yield* list(mapped(resources(false), shownAddress));
  yield ',"services":';
  yield* list(mapped(resources(true), shownAddress));
  yield '}\n';
}

/** `{policies}` with their conditions, also those that no client is sent. */
export function* policiesPage({ delta, objects }: PageSources): Generator<string> {
  const sent = new Set<string>();
  const served = function* (): Generator<object> {
    for (const resource of delta.resources(AUTHORIZATION_TYPE)) {
      sent.add(resource.name);
      const [namespace = '', name = ''] = resource.name.split('/');
      const source = objects.object('AuthorizationPolicy', namespace, name) ?? null;
      const content = decodeAuthorization(resource.bytes);
      const { name: key, version } = resource;
      yield { name: key, version, content, conditions: conditionsOf(source) };
    }
    for (const policy of objects.ofKind('AuthorizationPolicy')) {
      const name = `${policy.metadata.namespace}/${policy.metadata.name}`;
      if (sent.has(name)) continue;
      yield { name, version: null, content: null, conditions: conditionsOf(policy) };
    }
  };
  yield '{"policies":';
  yield* list(served());
  yield '}\n';
}

/** `{streams}`. */
export function* streamsPage({ delta }: PageSources): Generator<string> {
  yield '{"streams":';
  yield* list(delta.streams());
  yield '}\n';
}

/** `{nacks}`, oldest first. */
export function* nacksPage({ delta }: PageSources): Generator<string> {
  yield '{"nacks":';
  yield* list(delta.nacks);
  yield '}\n';
}

/** `{conditions}`: one line for each condition of each object. */
export function* conditionsPage({ map }: PageSources): Generator<string> {
  const lines = function* (): Generator<object> {
    for (const { kind, namespace, name, conditions } of map.statuses()) {
      for (const condition of conditions) yield { kind, namespace, name, ...condition };
    }
  };
  yield '{"conditions":';
  yield* list(lines());
  yield '}\n';
}

/** Everything that clients are sent: `{addresses: {workloads, services}, policies}`. */
export function* ambientPage(sources: PageSources): Generator<string> {
  yield '{"addresses":';
  yield* addressesPage(sources);
  yield ',"policies":';
  yield* list(mapped(sources.delta.resources(AUTHORIZATION_TYPE), shownPolicy));
  yield '}\n';
}

/** One line for each client and type: `SYNCED`, `STALE` (a response is not acknowledged), `NOT SENT` (more is owed). */
export function* syncPage({ delta }: PageSources): Generator<string> {
  const lines = function* (): Generator<object> {
    for (const { node, identity, subscriptions } of delta.streams()) {
      const types = Object.entries(subscriptions).map(([type, view]) => [
        type,
        { status: syncStatus(view), nonce: view.sentNonce, acknowledged: view.answeredNonce },
      ]);
      yield { proxy: node, identity, types: Object.fromEntries(types) as unknown };
    }
  };
  yield* list(lines());
  yield '\n';
}

/** `{totalClients, clients}`. */
export function* connectionsPage({ delta }: PageSources): Generator<string> {
  const lines = function* (): Generator<object> {
    for (const { id, node, peer, connectedAt } of delta.streams()) {
      yield { connectionId: id, proxy: node, address: peer, connectedAt };
    }
  };
  yield `{"totalClients":${delta.size},"clients":`;
  yield* list(lines());
  yield '}\n';
}

/** The clients whose node id contains the text, each with what it subscribes to; then the resources of wildcard clients. */
export function* configPage(sources: PageSources, proxy: string): Generator<string> {
  yield '{"clients":';
  yield* list(filtered(sources.delta.streams(), ({ node }) => node.includes(proxy)));
  yield ',"served":';
  yield* ambientPage(sources);
  yield '}\n';
}

function syncStatus(view: StreamView['subscriptions'][string]): string {
  if (view.outstanding) return 'STALE';
  return view.owed > 0 ? 'NOT SENT' : 'SYNCED';
}

function shownAddress({ name, version, bytes }: ServedResource): object {
  const address = decodeAddress(bytes);
  const content = address.kind === 'workload' ? address.workload : address.service;
  return { name, version, content };
}

function shownPolicy({ name, version, bytes }: ServedResource): object {
  return { name, version, content: decodeAuthorization(bytes) };
}

function* list(items: Iterable<object>): Generator<string> {
  let separator = '[';
  for (const item of items) {
    yield separator + JSON.stringify(item);
    separator = ',\n';
  }
  yield separator === '[' ? '[]' : ']';
}

function* mapped<From, To>(items: Iterable<From>, map: (item: From) => To): Generator<To> {
  for (const item of items) yield map(item);
}

function* filtered<Item>(items: Iterable<Item>, keep: (item: Item) => boolean): Generator<Item> {
  for (const item of items) if (keep(item)) yield item;
}
