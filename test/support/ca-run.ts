/** Hosts the CA in a process of its own, for tests that kill it; the steps of a rotation are as long as `SETTLE_MS` says. */
import { runActors } from '../../lib/actor/run-actors.ts';
import { definition } from '../../services/ca/ca-actor.ts';

const settleMs = Number(process.env['SETTLE_MS']);
const hosted = {
  ...definition,
  create: (config: Parameters<typeof definition.create>[0]) =>
    definition.create({ ...config, settleMs }),
};
process.exitCode = await runActors([hosted], process.env);
