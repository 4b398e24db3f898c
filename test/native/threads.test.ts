import { THREADS } from './support/build.ts';
import { declareTests } from './support/program.ts';

await declareTests(THREADS, 'threads.test.cc');
