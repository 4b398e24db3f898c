/** Starts an API server that serves Istio's resources. */
import { readFile } from 'node:fs/promises';
import { parseAllDocuments } from 'yaml';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { removeLeftovers } from '../../support/leftovers.ts';
import { startApiServer } from './api-server.ts';
import type { ApiServer } from './api-server.ts';
import { installDefinitions } from './definitions.ts';
import { kubernetesPrograms } from './programs.ts';

/** A server that runs, or the reason why there is none. */
export type ServerAnswer = ApiServer | { readonly missing: string } | { readonly failed: string };

/** Builds and starts it. It ends with the thread that starts it. */
export async function startDefined(): Promise<ServerAnswer> {
  try {
    removeLeftovers();
    const programs = await kubernetesPrograms();
    if ('missing' in programs) return programs;
    const server = await startApiServer(programs);
    const texts = await Promise.all(programs.definitions.map((file) => readFile(file, 'utf8')));
    await installDefinitions(
      server,
      texts.flatMap((text) => parseAllDocuments(text).map((document): unknown => document.toJS())),
    );
    return server;
  } catch (error) {
    return { failed: errorText(error) };
  }
}
