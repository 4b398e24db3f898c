import { Slots } from '../../lib/async/slots.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { threadNetns } from '../../lib/linux/netns.ts';
import { createLogger } from '../../lib/log/logger.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { Redirector } from '../../lib/redirect/apply.ts';
import { chooseTools } from '../../lib/redirect/flavour.ts';
import { nodeAgentConfig } from '../../services/node-agent/config.ts';
import type { NodeAgentConfig } from '../../services/node-agent/config.ts';
import { MAX_RULE_WRITERS } from '../../services/node-agent/limits.ts';
import { agentMetrics } from '../../services/node-agent/metrics.ts';
import { PodNamespaces } from '../../services/node-agent/netns/pod-namespaces.ts';
import { NodeEnrolments } from '../../services/node-agent/node-enrolments.ts';
import { RuleSets } from '../../services/node-agent/rule-sets.ts';

/** Makes the part of a node agent that writes rules, before a proxy that serves every pod at once. */
export async function nodeEnrolments(
  scratch: string,
  log = createLogger({ actor: 'node-agent', level: 'off' }),
): Promise<{
  readonly enrolments: NodeEnrolments;
  readonly config: NodeAgentConfig;
  readonly slots: Slots;
}> {
  const config = nodeAgentConfig.parse({
    REDIS_URL: 'unix:///none',
    WEFT_NODE_AGENT_PODS_DIR: scratch,
  });
  const { redirect, eligibility, drainMs } = config;
  const tools = await chooseTools({ ipv6: redirect.ipv6, force: 'nft', lockDir: scratch });
  const slots = new Slots(() => MAX_RULE_WRITERS, systemClock);
  const enrolments = new NodeEnrolments({
    zds: {
      ensure: () => Promise.resolve(),
      del: () => Promise.resolve(),
      forget: () => {},
      served: () => true,
    },
    rows: { set: () => {}, delete: () => {} },
    tell: () => {},
    existing: 'keep',
    redirector: new Redirector(tools, scratch),
    slots,
    clock: systemClock,
    log,
    metrics: agentMetrics(new MetricRegistry(), {
      states: () => new Map(),
      exposures: () => new Map(),
      proxies: () => 1,
      zds: () => ({ accepted: 0, broken: 0, refused: 0 }),
    }),
    ruleSets: new RuleSets(redirect),
    sysctlDir: '/proc/sys',
    namespaces: new PodNamespaces({ procDir: '/proc', sandboxes: null, log }),
    eligibility,
    ownNamespaces: [threadNetns()],
    drainMs,
    supervise: (work) => void work,
  });
  return { enrolments, config, slots };
}
