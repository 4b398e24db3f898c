/** Declares the tests of a file with their own mesh; reports what is missing. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { present } from '../../../lib/errors/assert.ts';
import type { MeshOptions } from '../../support/mesh.ts';
import { skipReason } from '../../support/netns-test.ts';
import { PeerMesh } from './peer-mesh.ts';

/** Declares a test that gets the mesh. */
export type PeerTest = (
  title: string,
  body: (t: ExecutionContext, peer: PeerMesh) => Promise<void>,
) => void;

/**
 * Registers the mesh of a file. `missing` says why the other implementation is unavailable; null when it is available.
 * `prepare` runs once the mesh is up.
 */
export function peerSuite(
  name: string,
  missing: string | null,
  declare: (declared: PeerTest) => void,
  prepare: (peer: PeerMesh) => Promise<void> = () => Promise.resolve(),
  options: MeshOptions = {},
): void {
  const reason = skipReason ?? missing;
  if (reason !== null) {
    process.stderr.write(`\nSKIPPED interop: ${name}: ${reason}\n`);
    declare((title) => test.serial.skip(`${name}: ${title}: ${reason}`, (t) => t.pass()));
    return;
  }
  let mesh: PeerMesh | null = null;
  test.after.always(async () => {
    await mesh?.down();
  });
  test.serial(`${name}: a mesh is up`, async (t) => {
    t.timeout(180_000);
    mesh = await PeerMesh.up(options);
    await prepare(mesh);
    t.pass();
  });
  declare((title, body) =>
    test.serial(`${name}: ${title}`, async (t) => {
      t.timeout(60_000);
      await body(t, present(mesh, 'the mesh is up'));
    }),
  );
}
