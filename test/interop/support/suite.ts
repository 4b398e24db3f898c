/** Declares a file's tests once for each engine, over a mesh of its own; says loudly what is missing. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { present } from '../../../lib/errors/assert.ts';
import { skipReason } from '../../support/netns-test.ts';
import { ENGINES, PeerMesh } from './peer-mesh.ts';

/** Declares a test that is given the engine's mesh. */
export type PeerTest = (
  title: string,
  body: (t: ExecutionContext, peer: PeerMesh) => Promise<void>,
) => void;

/** `missing` says why the other implementation is not here; null when it is. `prepare` runs once a mesh is up. */
export function peerSuite(
  name: string,
  missing: string | null,
  declare: (declared: PeerTest) => void,
  prepare: (peer: PeerMesh) => Promise<void> = () => Promise.resolve(),
): void {
  const reason = skipReason ?? missing;
  if (reason !== null) {
    process.stderr.write(`\nSKIPPED interop: ${name}: ${reason}\n`);
    declare((title) => test.serial.skip(`${name}: ${title}: ${reason}`, (t) => t.pass()));
    return;
  }
  const meshes = new Map<string, PeerMesh>();
  test.after.always(async () => {
    for (const peer of meshes.values()) await peer.down();
  });
  for (const engine of ENGINES) {
    test.serial(`${name}, ${engine}: a mesh is up`, async (t) => {
      t.timeout(180_000);
      const peer = await PeerMesh.up(engine);
      meshes.set(engine, peer);
      await prepare(peer);
      t.pass();
    });
    declare((title, body) =>
      test.serial(`${name}, ${engine}: ${title}`, async (t) => {
        t.timeout(60_000);
        await body(t, present(meshes.get(engine), 'the mesh is up'));
      }),
    );
    test.serial(`${name}, ${engine}: the mesh goes down`, async (t) => {
      const peer = present(meshes.get(engine), 'the mesh is up');
      meshes.delete(engine);
      await peer.down();
      t.pass();
    });
  }
}
