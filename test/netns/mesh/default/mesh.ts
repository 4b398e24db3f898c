/** Brings up the default mesh that all tests of this folder share. */
import { meshSuite } from '../../../support/mesh-suite.ts';

/** Declares a test that gets the mesh. It must leave the mesh unchanged. */
export const test = meshSuite();
