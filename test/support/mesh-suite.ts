/** Brings up a mesh before the tests of a file and takes it down after them. Skips them when namespaces are missing. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { TestMesh } from './mesh.ts';
import type { MeshOptions } from './mesh.ts';
import { skipReason } from './netns-test.ts';

/** Declares a test that gets the file's mesh. Tests run one after another, in order. */
export type MeshTest = (
  title: string,
  body: (t: ExecutionContext, mesh: TestMesh) => Promise<void>,
) => void;

/** Registers the mesh of this file and returns a function that declares its tests. */
export function meshSuite(options: MeshOptions = {}): MeshTest {
  if (skipReason !== null) return (title) => test.serial.skip(title, (t) => t.pass());
  let mesh: TestMesh | null = null;
  let failed = false;
  test.before(async (t) => {
    t.timeout(280_000);
    mesh = await TestMesh.up(options);
  });
  test.after.always(async (t) => {
    t.timeout(120_000);
    if (failed && mesh !== null) process.stderr.write(`${await mesh.logs()}\n`);
    await mesh?.down();
  });
  return (title, body) =>
    test.serial(title, async (t) => {
      t.timeout(280_000);
      try {
        await body(t, present(mesh, 'the mesh is up'));
      } finally {
        failed ||= !t.passed;
      }
    });
}
