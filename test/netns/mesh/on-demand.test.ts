/** Tests a whole local mesh that follows only the addresses that connections of its pods need. */
import { meshSuite } from '../../support/mesh-suite.ts';

const test = meshSuite({ environment: { XDS_ON_DEMAND: 'true' } });

test('pods call services by their names, and the mesh follows what they need', async (t, mesh) => {
  const page = await mesh.curl('demo/client', 'http://api/');
  t.is(page.code, 0, page.stderr);
  t.regex(page.stdout, /api-[12]/);
  const { onDemandNames: names } = await mesh.json<{
    readonly onDemandNames: readonly string[];
  }>('status');
  t.true(names.includes('Kubernetes//Pod/demo/client'), String(names));
  t.true(
    names.some((name) => /^\/[\d.]+$/.test(name)),
    String(names),
  );
  const { stdout } = await mesh.weft('status');
  t.regex(stdout, new RegExp(`the mesh is followed on demand: ${names.length} names are known`));
});
