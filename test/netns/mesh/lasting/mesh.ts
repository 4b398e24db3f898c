/** Brings up the mesh that all tests of this folder share. */
import { meshSuite } from '../../../support/mesh-suite.ts';

/** Declares a test that gets the mesh. Connections outlive a replaced proxy, and the enrolment of their pod, for longer than any test. */
export const test = meshSuite({ environment: { CONNECTION_TERMINATION_DEADLINE: '600s' } });
