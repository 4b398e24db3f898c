/** Builds the programs that tests start, once for each run of AVA: its configurations import this file. */
import { build } from '../../infra/build.ts';

await build();
