import { QUICK } from '../../native/support/build.ts';
import { declareTests } from '../../native/support/program.ts';

await declareTests(QUICK, 'corpora.test.cc');
