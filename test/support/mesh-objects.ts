/** Makes the control plane's stored objects from YAML, and the resources mapped from them. */
import { parseManifestText } from '../../lib/kube/manifest-text.ts';
import { parsePrefix } from '../../lib/net/prefix.ts';
import type { Authorization } from '../../lib/policy/model.ts';
import type { Service, Workload } from '../../lib/state/model.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../lib/xds/resources/authorization.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../lib/xds/type-urls.ts';
import { MeshMap } from '../../services/control-plane/mapping/mesh-map.ts';
import type { ChangedNames } from '../../services/control-plane/mapping/mesh-map.ts';
import type { MappedResource } from '../../services/control-plane/mapping/resource.ts';
import type { MeshSettings } from '../../services/control-plane/mapping/settings.ts';
import { namespaceOf, objectKey } from '../../services/control-plane/manifests/kinds.ts';
import type { KubeObject } from '../../services/control-plane/manifests/kinds.ts';
import { parseDocuments } from '../../services/control-plane/manifests/parse.ts';
import type { ParsedManifest } from '../../services/control-plane/manifests/parse.ts';
import { ManifestRejection } from '../../services/control-plane/manifests/rejection.ts';
import type { AdmissionContext } from '../../services/control-plane/store/admission.ts';
import { Draft, CommittedState } from '../../services/control-plane/store/state.ts';
import { applyManifests } from '../../services/control-plane/store/transactions.ts';
import type { Steps } from '../../services/control-plane/store/transactions.ts';

/** Default settings of a mesh. */
export const TEST_SETTINGS: MeshSettings = {
  clusterId: 'Kubernetes',
  trustDomain: 'cluster.local',
  domain: 'cluster.local',
  policies: { rootNamespace: 'istio-system', dryRun: false },
};

/** Makes settings of admission, at a fixed time. */
export function admissionContext(fields: Partial<AdmissionContext> = {}): AdmissionContext {
  let uids = 0;
  return {
    ranges: {
      serviceV4: parsePrefix('10.96.0.0/16'),
      serviceV6: parsePrefix('fd00:96::/112'),
      entryV4: parsePrefix('240.240.0.0/16'),
      entryV6: parsePrefix('2001:2::/48'),
    },
    policies: TEST_SETTINGS.policies,
    ownsRedirection: false,
    fixedNamespaces: [],
    now: '2026-11-21T12:00:00.000Z',
    newUid: () => {
      uids += 1;
      return `uid-${uids}`;
    },
    ...fields,
  };
}

/** Parses manifests that must be valid. */
export function manifestsOf(text: string): readonly ParsedManifest[] {
  const parsed = parseManifestText('test.yaml', text);
  const { manifests, problems } = parseDocuments(parsed.documents);
  const all = [...parsed.problems, ...problems];
  if (all.length > 0) throw new ManifestRejection(all);
  return manifests;
}

/** Runs a change to its end at once. */
export function finish<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** A mesh in memory: the committed state, and the resources mapped from it. */
export class TestMesh {
  readonly state = new CommittedState();
  readonly map: MeshMap;
  #minute = 0;
  readonly #context: AdmissionContext;

  constructor(settings: Partial<MeshSettings> = {}, context: Partial<AdmissionContext> = {}) {
    const merged = { ...TEST_SETTINGS, ...settings };
    this.#context = admissionContext({ policies: merged.policies, ...context });
    this.map = new MeshMap(merged, (key, error) => {
      throw new Error(`${key} cannot be mapped`, { cause: error });
    });
    this.apply(['default', 'demo', 'other', 'istio-system'].map(namespace).join('---\n'));
    this.refresh();
  }

  /** Applies YAML; each call is a minute later than the previous one. A pod's `status` counts as its report. */
  apply(text: string): void {
    this.#minute += 1;
    const now = `2026-11-21T12:${String(this.#minute).padStart(2, '0')}:00.000Z`;
    const draft = new Draft(this.state);
    const manifests = manifestsOf(text);
    finish(applyManifests(draft, manifests, null, { ...this.#context, now }));
    for (const { object } of manifests) {
      if (object.kind !== 'Pod' || object.status === undefined) continue;
      const namespace = object.metadata.namespace ?? 'default';
      const stored = draft.get(`Pod/${namespace}/${object.metadata.name}`)?.object;
      if (stored?.kind === 'Pod') draft.put({ ...stored, status: object.status }, null);
    }
    this.commit(draft);
  }

  /** Deletes by key, `Kind/namespace/name`. */
  remove(...keys: string[]): void {
    const draft = new Draft(this.state);
    for (const key of keys) draft.delete(key);
    this.commit(draft);
  }

  commit(draft: Draft): void {
    const told: { before: KubeObject | null; after: KubeObject | null }[] = [];
    for (const change of draft.changes) {
      if (change.op === 'file') continue;
      const key = change.op === 'delete' ? change.key : keyOf(change.object);
      const before = this.state.get(key)?.object ?? null;
      this.state.apply(change);
      told.push({ before, after: change.op === 'put' ? change.object : null });
    }
    this.map.note(told);
  }

  /** Brings the resources up to date at once. */
  refresh(): ChangedNames {
    return finish(this.map.steps());
  }

  /** Refreshes the resources and returns the names that changed, sorted. */
  changed(): string[] {
    return [...this.refresh().values()].flatMap((names) => [...names]).sort();
  }

  workload(uid: string): Workload | undefined {
    return this.#content(ADDRESS_TYPE, uid) as Workload | undefined;
  }

  pod(name: string): Workload | undefined {
    return this.workload(`Kubernetes//Pod/demo/${name}`);
  }

  service(key: string): Service | undefined {
    return this.#content(ADDRESS_TYPE, key) as Service | undefined;
  }

  policy(key: string): Authorization | undefined {
    return this.#content(AUTHORIZATION_TYPE, key) as Authorization | undefined;
  }

  policies(): string[] {
    this.refresh();
    return [...this.map.of(AUTHORIZATION_TYPE).keys()].sort();
  }

  /** The conditions of an object, by `Kind/namespace/name`: type, status, reason. */
  conditions(key: string): string[] {
    this.refresh();
    const { conditions = [] } = this.map.status(key) ?? {};
    return conditions.map(({ type, status, reason }) => `${type} ${status} ${reason}`);
  }

  #content(type: ResourceType, name: string): Workload | Service | Authorization | undefined {
    this.refresh();
    const resource = this.map.get(type, name);
    return resource === undefined ? undefined : contentOf(resource);
  }
}

function contentOf({ type, bytes }: MappedResource): Workload | Service | Authorization {
  if (type === AUTHORIZATION_TYPE) return decodeAuthorization(bytes);
  const decoded = decodeAddress(bytes);
  return decoded.kind === 'workload' ? decoded.workload : decoded.service;
}

function keyOf(object: KubeObject): string {
  return objectKey(object.kind, namespaceOf(object), object.metadata.name);
}

/** Makes a Namespace document. */
export function namespace(name: string): string {
  return `apiVersion: v1\nkind: Namespace\nmetadata: {name: ${name}}\n`;
}

/** Makes a document of a running pod; `metadata` and `spec` are flow mappings without braces. */
export function podManifest(
  name: string,
  fields: { metadata?: string; spec?: string; container?: string; status?: string } = {},
): string {
  const status =
    fields.status ??
    "phase: Running, podIPs: [{ip: 10.201.0.5}], conditions: [{type: Ready, status: 'True'}]";
  return [
    'apiVersion: v1',
    'kind: Pod',
    `metadata: {name: ${name}, namespace: demo, ${fields.metadata ?? ''}}`,
    `spec: {nodeName: node-1, containers: [{name: app, ${fields.container ?? ''}}], ${fields.spec ?? ''}}`,
    `status: {${status}}`,
    '',
  ].join('\n');
}
