/** Writes objects into etcd, where an API server finds them. The API server itself takes a few hundred a second. */

/** An object of the API server. */
export interface SeededObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

/** Operations that etcd takes in one transaction. */
const PUTS_PER_TRANSACTION = 100;
/** Transactions under way at once. */
const TRANSACTIONS_AT_ONCE = 4;

/** Folders of etcd by kind, as the API server names them. */
const FOLDERS: Readonly<Record<string, string>> = {
  Namespace: 'namespaces',
  Node: 'minions',
  Pod: 'pods',
  Service: 'services/specs',
  EndpointSlice: 'endpointslices',
};

/** Writes the objects. Throws when etcd refuses one. */
export async function seed(etcdUrl: string, objects: Iterable<SeededObject>): Promise<number> {
  const parts = partsOf(objects);
  let count = 0;
  const write = async (): Promise<void> => {
    for (const part of parts) {
      count += part.length;
      await put(etcdUrl, part);
    }
  };
  await Promise.all(Array.from({ length: TRANSACTIONS_AT_ONCE }, write));
  return count;
}

function* partsOf(objects: Iterable<SeededObject>): Generator<SeededObject[]> {
  let part: SeededObject[] = [];
  for (const object of objects) {
    part.push(object);
    if (part.length < PUTS_PER_TRANSACTION) continue;
    yield part;
    part = [];
  }
  if (part.length > 0) yield part;
}

async function put(etcdUrl: string, objects: readonly SeededObject[]): Promise<void> {
  const success = objects.map((object) => ({
    requestPut: { key: encoded(keyOf(object)), value: encoded(JSON.stringify(object)) },
  }));
  const response = await fetch(`${etcdUrl}/v3/kv/txn`, {
    method: 'POST',
    body: JSON.stringify({ success }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`etcd: ${text}`);
}

function keyOf({ kind, metadata: { namespace, name } }: SeededObject): string {
  const folder = FOLDERS[kind];
  if (folder === undefined) throw new TypeError(`no folder of etcd is known for ${kind}`);
  const place = namespace === undefined ? name : `${namespace}/${name}`;
  return `/registry/${folder}/${place}`;
}

function encoded(text: string): string {
  return Buffer.from(text).toString('base64');
}
