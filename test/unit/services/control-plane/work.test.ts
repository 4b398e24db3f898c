/** The work that a change causes, counted in computations. */
import test from 'ava';
import type { Kind } from '../../../../services/control-plane/manifests/kinds.ts';
import { reduce } from '../../../../services/control-plane/manifests/reduce.ts';
import { MeshMap } from '../../../../services/control-plane/mapping/mesh-map.ts';
import { servicePortProtocol } from '../../../../services/control-plane/mapping/app-protocol.ts';
import { BigMesh } from '../../../bench/lib/big-mesh.ts';
import { TEST_SETTINGS, finish } from '../../../support/mesh-objects.ts';

const PODS = 1_000;

interface Work {
  readonly resources: number;
  readonly computed: number;
}

class CountedMesh {
  readonly mesh = new BigMesh(PODS);
  readonly #map = new MeshMap(TEST_SETTINGS, (key, error) => {
    throw new Error(`${key} cannot be mapped`, { cause: error });
  });

  constructor() {
    for (const [kind, json] of this.mesh.pages(500)) this.#note(kind, json);
    finish(this.#map.steps());
  }

  change(kind: Kind, json: string): Work {
    this.#note(kind, json);
    const before = this.#map.computed;
    const changed = finish(this.#map.steps());
    const resources = [...changed.values()].reduce((sum, names) => sum + names.size, 0);
    return { resources, computed: this.#map.computed - before };
  }

  #note(kind: Kind, json: string): void {
    for (const item of JSON.parse(json) as unknown[]) {
      this.#map.note([{ before: null, after: reduce(kind, item) }]);
    }
  }
}

test('a changed pod is computed alone', (t) => {
  const counted = new CountedMesh();
  t.deepEqual(counted.change('Pod', counted.mesh.pod(7, { ready: false })), {
    resources: 1,
    computed: 1,
  });
  t.deepEqual(counted.change('Pod', counted.mesh.pod(7, { ready: false })), {
    resources: 0,
    computed: 1,
  });
});

test('a Service computes the pods that it selects and no others', (t) => {
  const counted = new CountedMesh();
  const { resources, computed } = counted.change('Service', counted.mesh.wideService());
  t.is(resources, PODS / 5 + 1);
  t.true(computed < 1.1 * resources, `${computed} computations`);
});

test('a mode for the whole mesh computes each pod once, and no pod when it changes nothing', (t) => {
  const counted = new CountedMesh();
  const none = counted.change('PeerAuthentication', counted.mesh.rootStrict('PERMISSIVE'));
  t.is(none.resources, 1);
  t.true(none.computed < PODS / 5, `${none.computed} computations`);
  const strict = counted.change('PeerAuthentication', counted.mesh.rootStrict('STRICT'));
  t.is(strict.resources, PODS);
  t.true(strict.computed < 1.1 * PODS, `${strict.computed} computations`);
});

for (const [port, protocol] of [
  [{ port: 80, name: 'http-web' }, 'HTTP11'],
  [{ port: 80, name: 'GRPC' }, 'GRPC'],
  [{ port: 80, name: 'grpc-web-x' }, 'UNKNOWN'],
  [{ port: 80, name: 'http', appProtocol: 'kubernetes.io/h2c' }, 'HTTP2'],
  [{ port: 80, appProtocol: 'kubernetes.io/wss' }, 'TLS'],
  [{ port: 443, name: 'https' }, 'TLS'],
  [{ port: 80, name: 'tcp-x' }, 'TCP'],
  [{ port: 3306, name: 'db' }, 'TCP'],
  [{ port: 53, name: 'dns', protocol: 'UDP' }, 'UNKNOWN'],
  [{ port: 80 }, 'UNKNOWN'],
] as const) {
  test(`the protocol of ${JSON.stringify(port)}`, (t) => {
    t.is(servicePortProtocol(port), protocol);
  });
}
