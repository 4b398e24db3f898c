/** Writes what is made of the chart and its sources: `node test/kubernetes/render-chart.ts`. */
import { writeFile } from 'node:fs/promises';
import {
  DEFINITIONS_FILE,
  MANIFESTS,
  helmProgram,
  renderDefinitions,
  renderManifests,
} from './support/helm.ts';

const helm = await helmProgram();
if ('missing' in helm) {
  process.stderr.write(`${helm.missing}\n`);
  process.exitCode = 1;
} else {
  await writeFile(MANIFESTS, await renderManifests(helm.path));
  await writeFile(DEFINITIONS_FILE, await renderDefinitions());
}
