import { ADDRESSES } from './support/build.ts';
import { declareTests } from './support/program.ts';

await declareTests(ADDRESSES, 'faults.test.cc');
