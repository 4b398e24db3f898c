/** A process that hosts one small actor, steered by its environment; used by the runner's tests. */
import { setTimeout as wait } from 'node:timers/promises';
import type { ActorDefinition } from '../../lib/actor/actor.ts';
import { runActors } from '../../lib/actor/run-actors.ts';
import { defineConfig } from '../../lib/config/define-config.ts';
import { oneOf } from '../../lib/config/fields.ts';
import { sendText } from '../../lib/http/answers.ts';

const modes = ['normal', 'fail-start', 'slow-drain', 'fail-work', 'leak'] as const;

const definition: ActorDefinition<{ mode: (typeof modes)[number] }> = {
  name: 'fixture',
  perNode: true,
  config: defineConfig(
    {
      WEFT_FIXTURE_MODE: {
        schema: oneOf(...modes)({ default: 'normal' }),
        description: 'what to do',
      },
    },
    (values) => ({ mode: values.WEFT_FIXTURE_MODE }),
  ),
  create: ({ mode }) => {
    let keep: NodeJS.Timeout | null = null;
    return {
      async start(context) {
        if (mode === 'fail-start') throw new Error('cannot start');
        keep = setInterval(() => undefined, 1_000);
        const release = context.readiness.block('gate');
        context.admin.route('POST', '/open', (_request, response) => {
          release();
          sendText(response, 200, 'open\n');
        });
        if (mode === 'fail-work')
          context.supervise(
            'work',
            wait(10).then(() => Promise.reject(new Error('lost'))),
          );
      },
      async drain() {
        if (mode === 'slow-drain') await wait(60_000, undefined, { ref: false });
      },
      async stop() {
        if (mode !== 'leak' && keep !== null) clearInterval(keep);
      },
    };
  },
};

try {
  process.exitCode = await runActors([definition], process.env);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 78;
}
