/** The means of a test against the API server. */
import { randomBytes } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { systemClock } from '../../../lib/clock/clock.ts';
import { present } from '../../../lib/errors/assert.ts';
import { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import type { KubernetesConnection } from '../../../lib/kubernetes/connection.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import type { ResourceType } from '../../../lib/kubernetes/resource.ts';
import type { TeardownOwner } from '../../support/actor-context.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { DEFINITIONS, adminClient, installDefinitions } from './definitions.ts';
import type { ApiServer } from './api-server.ts';
import { Gateway } from './gateway.ts';
import { kubeconfigText } from './kubeconfig.ts';

/** An object as tests write it. */
export interface TestObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/** An object that the API server has. */
export interface StoredTestObject extends TestObject {
  readonly metadata: TestObject['metadata'] & {
    readonly uid: string;
    readonly creationTimestamp: string;
    readonly resourceVersion: string;
    readonly generation?: number;
  };
}

/** A request in the API server's audit log. */
export interface AuditedRequest {
  readonly verb: string;
  readonly user: string;
  readonly agent: string;
  readonly code: number;
  readonly group: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
}

/** The objects and accounts of one test. */
export class Cluster {
  readonly server: ApiServer;
  /** A client with all rights. */
  readonly admin: KubernetesClient;
  readonly #t: TeardownOwner;

  constructor(server: ApiServer, t: TeardownOwner) {
    this.server = server;
    this.#t = t;
    this.admin = adminClient(server);
    t.teardown(() => this.admin.close());
  }

  /** Creates a namespace with a new name, which it returns. Other tests use the same server, so every test makes its own. */
  async namespace(
    label: string,
    labels: Readonly<Record<string, string>> = {},
    annotations: Readonly<Record<string, string>> = {},
  ): Promise<string> {
    const name = `${label}-${randomBytes(4).toString('hex')}`;
    await this.admin.create('/api/v1/namespaces', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name, labels, annotations },
    });
    return name;
  }

  /** Creates or changes objects by server-side apply, as kubectl does; also their status where they have one. */
  async apply(...objects: readonly TestObject[]): Promise<StoredTestObject[]> {
    const stored: StoredTestObject[] = [];
    for (const object of objects) {
      const { name, namespace = null } = object.metadata;
      const type = await this.#typeOf(object);
      const options = { fieldManager: 'weft-test', force: true };
      const path = resourcePath(type, { name, namespace });
      let result = await this.admin.apply(path, withoutStatus(object), options);
      if (object['status'] !== undefined) {
        const status = resourcePath(type, { name, namespace, subresource: 'status' });
        const { apiVersion, kind } = object;
        const body = { apiVersion, kind, metadata: { name, namespace }, status: object['status'] };
        result = await this.admin.apply(status, body, options);
      }
      stored.push(result as StoredTestObject);
    }
    return stored;
  }

  /** Has the API server judge an object by server-side apply. It refuses unknown fields, and stores nothing. */
  async judge(object: TestObject): Promise<void> {
    await this.admin.request({
      method: 'PATCH',
      path: await this.path(object),
      query: { fieldManager: 'weft-test', fieldValidation: 'Strict', dryRun: 'All' },
      contentType: 'application/apply-patch+yaml',
      body: object,
    });
  }

  /** The path of an object or of a subresource of it. */
  async path(object: TestObject, subresource?: string): Promise<string> {
    const { name, namespace = null } = object.metadata;
    const place = { name, namespace, ...(subresource === undefined ? {} : { subresource }) };
    return resourcePath(await this.#typeOf(object), place);
  }

  /** Creates or changes the objects of a YAML text. */
  applyText(text: string): Promise<StoredTestObject[]> {
    const documents = parseAllDocuments(text).map((document): unknown => document.toJS());
    return this.apply(...(documents.filter((item) => item !== null) as TestObject[]));
  }

  /** Reads the current state of an object. */
  async get(object: TestObject): Promise<StoredTestObject> {
    const { name, namespace = null } = object.metadata;
    const path = resourcePath(await this.#typeOf(object), { name, namespace });
    return (await this.admin.get(path)) as StoredTestObject;
  }

  /** Deletes objects, at once. */
  async delete(...objects: readonly TestObject[]): Promise<void> {
    for (const object of objects) {
      const { name, namespace = null } = object.metadata;
      await this.admin.request({
        method: 'DELETE',
        path: resourcePath(await this.#typeOf(object), { name, namespace }),
        query: { gracePeriodSeconds: '0' },
      });
    }
  }

  /** Installs a CustomResourceDefinition with objects of any fields, and removes it with the test. */
  async define(names: {
    readonly group: string;
    readonly plural: string;
    readonly kind: string;
    readonly version: string;
  }): Promise<void> {
    const { group, plural, kind, version } = names;
    const schema = {
      openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
    };
    await installDefinitions(this.server, [
      {
        apiVersion: 'apiextensions.k8s.io/v1',
        kind: 'CustomResourceDefinition',
        metadata: { name: `${plural}.${group}` },
        spec: {
          group,
          scope: 'Namespaced',
          names: { plural, kind },
          versions: [{ name: version, served: true, storage: true, schema }],
        },
      },
    ]);
    this.#t.teardown(async () => {
      const client = adminClient(this.server);
      await client.delete(resourcePath(DEFINITIONS, { name: `${plural}.${group}` }));
      client.close();
    });
  }

  /** Returns a token of a service account, which it creates when it does not exist. `pod` binds the token to a pod. */
  async token(
    namespace: string,
    account: string,
    options: {
      readonly audiences?: readonly string[];
      readonly pod?: { readonly name: string; readonly uid: string };
      readonly seconds?: number;
    } = {},
  ): Promise<string> {
    await this.apply({
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: account, namespace },
    });
    const { audiences, pod, seconds = 3_600 } = options;
    const answer = (await this.admin.create(
      `/api/v1/namespaces/${namespace}/serviceaccounts/${account}/token`,
      {
        apiVersion: 'authentication.k8s.io/v1',
        kind: 'TokenRequest',
        spec: {
          expirationSeconds: seconds,
          ...(audiences === undefined ? {} : { audiences }),
          ...(pod === undefined
            ? {}
            : { boundObjectRef: { apiVersion: 'v1', kind: 'Pod', ...pod } }),
        },
      },
    )) as { readonly status: { readonly token: string } };
    return answer.status.token;
  }

  /** A connection with a token, by default the administrator's, directly or through a {@link Gateway}. */
  connection(
    options: { readonly token?: string; readonly via?: Gateway } = {},
  ): KubernetesConnection {
    const { token = this.server.adminToken, via } = options;
    return {
      server: new URL(via?.url ?? this.server.url),
      serverName: null,
      ca: { kind: 'text', text: this.server.caPem },
      token: { kind: 'text', text: token },
      client: null,
      namespace: null,
    };
  }

  /** A client on such a connection; closed with the test. */
  client(options: { readonly token?: string; readonly via?: Gateway } = {}): KubernetesClient {
    const client = new KubernetesClient(this.connection(options), {
      clock: systemClock,
      userAgent: 'weft-test',
    });
    this.#t.teardown(() => client.close());
    return client;
  }

  /** Writes a kubeconfig file for a token, by default the administrator's, and returns its path. */
  async kubeconfig(
    options: { readonly token?: string; readonly via?: Gateway } = {},
  ): Promise<string> {
    const folder = await makeScratch('kubeconfig');
    this.#t.teardown(() => rm(folder, { recursive: true, force: true }));
    const path = join(folder, 'config');
    const { caPem, url, adminToken } = this.server;
    const server = options.via?.url ?? url;
    await writeFile(path, kubeconfigText({ server, caPem, token: options.token ?? adminToken }));
    return path;
  }

  /** Puts something between a client and the API server that a test can cut, stop and slow down. */
  gateway(): Promise<Gateway> {
    return Gateway.open(this.server.url, this.#t);
  }

  /** Makes etcd forget all history. Watches and lists of {@link UNCACHED_RESOURCE} from before have expired then. */
  async compact(): Promise<void> {
    const post = async (path: string, body: unknown): Promise<unknown> => {
      const options = { method: 'POST', body: JSON.stringify(body) };
      const response = await fetch(`${this.server.etcdUrl}${path}`, options);
      if (!response.ok) throw new Error(`etcd: ${await response.text()}`);
      return response.json();
    };
    const range = (await post('/v3/kv/range', { key: 'AA==', limit: 1 })) as {
      readonly header: { readonly revision: string };
    };
    await post('/v3/kv/compaction', { revision: range.header.revision, physical: true });
  }

  /** Returns the finished requests of an account, `system:serviceaccount:…`, so far. */
  async audited(user: string): Promise<AuditedRequest[]> {
    // Behind the last line break is a line that is being written.
    const lines = (await readFile(this.server.auditLog, 'utf8')).split('\n').slice(0, -1);
    return lines.filter((line) => line.includes(`"${user}"`)).map(auditedRequest);
  }

  async #typeOf({ apiVersion, kind }: TestObject): Promise<ResourceType> {
    const [group, version] = apiVersion.includes('/')
      ? (apiVersion.split('/') as [string, string])
      : (['', apiVersion] as const);
    const list = (await this.admin.get(
      group === '' ? `/api/${version}` : `/apis/${group}/${version}`,
    )) as {
      readonly resources: readonly { name: string; kind: string; namespaced: boolean }[];
    };
    const found = list.resources.find((item) => item.kind === kind && !item.name.includes('/'));
    const { name, namespaced } = present(found, `the API server serves ${kind} of ${apiVersion}`);
    return { group, versions: [version], plural: name, namespaced };
  }
}

function withoutStatus(object: TestObject): unknown {
  const { status: _status, ...rest } = object;
  return rest;
}

function auditedRequest(line: string): AuditedRequest {
  const event = JSON.parse(line) as {
    readonly verb: string;
    readonly userAgent?: string;
    readonly user: { readonly username: string };
    readonly responseStatus?: { readonly code?: number };
    readonly objectRef?: Readonly<Record<string, string>>;
  };
  const { objectRef = {} } = event;
  return {
    verb: event.verb,
    user: event.user.username,
    agent: event.userAgent ?? '',
    code: event.responseStatus?.code ?? 0,
    group: objectRef['apiGroup'] ?? '',
    resource: objectRef['resource'] ?? '',
    subresource: objectRef['subresource'] ?? '',
    namespace: objectRef['namespace'] ?? '',
    name: objectRef['name'] ?? '',
  };
}
