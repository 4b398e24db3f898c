/** Compares the rights of each container, as the engine reports them, with the expected ones. */
import type { ContainerFacts } from '../support/docker-host.ts';

const NODE_CAPABILITIES = ['NET_ADMIN', 'NET_RAW', 'SYS_ADMIN'];

/** The expectations of a service beyond those of all services. */
interface Expected {
  readonly user: string;
  readonly capabilities: readonly string[];
  /** False for a container that only holds a network: it has no health check. */
  readonly health: boolean;
}

const PLAIN: Expected = { user: 'weft', capabilities: [], health: true };

/** Returns the expectations of a service. */
export function expectedOf(service: string): Expected {
  if (/^node-\d$/.test(service)) return { ...PLAIN, health: false };
  if (/^node-\d-agent$/.test(service)) {
    const capabilities = [...NODE_CAPABILITIES, 'SYS_PTRACE', 'DAC_OVERRIDE'].toSorted();
    return { user: '0:1337', capabilities, health: true };
  }
  if (/^node-\d-proxy$/.test(service)) {
    return { user: '0:1337', capabilities: NODE_CAPABILITIES, health: true };
  }
  if (service === 'supervisor') {
    return { user: '0:1337', capabilities: ['DAC_OVERRIDE', 'KILL', 'SYS_PTRACE'], health: true };
  }
  return PLAIN;
}

/** One container as a line of the table, with its deviations. */
export interface ServiceLine {
  readonly service: string;
  readonly text: string;
  readonly wrong: readonly string[];
}

/** Compares a container with the expectations of its service. */
export function serviceLine(facts: ContainerFacts): ServiceLine {
  const service = facts.Config.Labels['com.docker.compose.service'] ?? '';
  const wanted = expectedOf(service);
  const { HostConfig, Config } = facts;
  const added = (HostConfig.CapAdd ?? []).map((name) => name.replace(/^CAP_/, '')).toSorted();
  const check = Config.Healthcheck?.Test ?? [];
  const dropsAll = (HostConfig.CapDrop ?? []).includes('ALL');
  const noNew = (HostConfig.SecurityOpt ?? []).some((one) => one.startsWith('no-new-privileges'));
  const found: readonly (readonly [string, boolean])[] = [
    [`runs as ${Config.User}`, Config.User === wanted.user],
    [`has ${added.join(', ') || 'no capability'}`, added.join() === wanted.capabilities.join()],
    ['keeps capabilities it was not given', dropsAll],
    ['may gain privileges', noNew],
    ['is privileged', !HostConfig.Privileged],
    ['writes to its image', HostConfig.ReadonlyRootfs],
    ['has no label of the image', Config.Labels['org.opencontainers.image.title'] === 'weft'],
    [`health check ${check.join(' ')}`, wanted.health ? check[0] === 'CMD' : check.length === 0],
    [
      `is ${facts.State.Health?.Status ?? 'without health'}`,
      !wanted.health || facts.State.Health?.Status === 'healthy',
    ],
  ];
  const rights = added.join(' ') || '-';
  return {
    service,
    text: [service.padEnd(18), Config.User.padEnd(8), rights.padEnd(58), check[1] ?? '-'].join(' '),
    wrong: found.flatMap(([what, fine]) => (fine ? [] : [`${service}: ${what}`])),
  };
}
