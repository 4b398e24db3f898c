/** The mesh that all tests of this folder share: the default one, with no setting changed. */
import { meshSuite } from '../../../support/mesh-suite.ts';

/** Declares a test that is given the mesh. It leaves the mesh as it found it. */
export const test = meshSuite();
