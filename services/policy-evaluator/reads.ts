/** Serves rows of the mesh state, and explanations, to operators who do not reach Redis. */
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { TableName } from '../../lib/bus/contract.ts';
import { HttpRefusal, readJson, sendJson } from '../../lib/http/answers.ts';
import type { Routes } from '../../lib/http/routes.ts';
import { explainRequestSchema } from '../../lib/policy/explain.ts';
import type { ExplainRequest, ExplainResult } from '../../lib/policy/explain.ts';
import { MAX_EXPLAIN_BYTES } from './limits.ts';

/** Tables of the mesh. */
const TABLES: ReadonlySet<string> = new Set<TableName>([
  'addresses',
  'authorizations',
  'rejections',
  'programs',
  'removals',
  'names',
]);

/** The evaluator behind the routes. */
export interface Reads {
  readonly bus: Pick<Bus, 'sharedWriter'>;
  explain(request: ExplainRequest): ExplainResult;
}

/** Declares `GET /rows?table=`, which answers `{rows: [[key, base64], …]}`, and `POST /explain`. */
export function declareReads(routes: Routes, { bus, explain }: Reads): void {
  routes.route('GET', '/rows', async (_request, response, { searchParams }) => {
    const table = searchParams.get('table') ?? '';
    if (!isTable(table)) {
      throw new HttpRefusal(400, `table: must be one of ${[...TABLES].join(', ')}`);
    }
    const rows = await bus.sharedWriter(table, 'mesh').readAll();
    const texts = [...rows].map(([key, value]) => [key, Buffer.from(value).toString('base64')]);
    sendJson(response, 200, { rows: texts });
  });
  routes.route('POST', '/explain', async (request, response) => {
    const parsed = explainRequestSchema.safeParse(await readJson(request, MAX_EXPLAIN_BYTES));
    if (!parsed.success) throw new HttpRefusal(400, parsed.error.message);
    sendJson(response, 200, explain(parsed.data));
  });
}

function isTable(text: string): text is TableName {
  return TABLES.has(text);
}
