/** Renders the commands that change a namespace from its present redirection to the expected one. Pure. */
import { ownPolicy, ownRoutes } from './compare.ts';
import type { ObservedFamily, ObservedTable } from './observed.ts';
import { HOOKS, OWN_CHAINS, POLICY_ROUTE, TABLES } from './rules.ts';
import type { FamilyRules, Table } from './rules.ts';

/** The place of our jumps among the rules of others: redirection decides first, and marks have the last word. */
const PLACES: Readonly<Record<Table, '-I' | '-A'>> = { raw: '-A', mangle: '-A', nat: '-I' };

/**
 * Renders input of `iptables-restore --noflush` that leaves exactly the expected rules in our chains and one jump to each. A
 * table is replaced in one step, so no packet meets a half-written one. Rules of others stay. Empty when there is nothing to
 * write or remove.
 */
export function renderRestore(expected: FamilyRules, observed: ObservedFamily): string {
  return TABLES.map((table) => {
    const rules = expected.rules.filter((rule) => rule.table === table);
    const found = observed.tables.find((candidate) => candidate.table === table);
    if (rules.length === 0) return found === undefined ? '' : renderRemoval(found);
    return section(table, [
      // The declaration of a chain creates or empties it.
      ...OWN_CHAINS.map((chain) => `:${chain} - [0:0]`),
      ...deletedJumps(found),
      ...OWN_CHAINS.map((chain) => `${PLACES[table]} ${HOOKS[chain]} -j ${chain}`),
      ...rules.map((rule) => `-A ${rule.chain} ${rule.text}`),
    ]);
  }).join('');
}

/** Renders input of `iptables-restore --noflush` that removes all our rules. The redirection ends first. */
export function renderRemove(observed: ObservedFamily): string {
  return [...observed.tables]
    .sort((a, b) => TABLES.indexOf(b.table) - TABLES.indexOf(a.table))
    .map(renderRemoval)
    .join('');
}

/** Renders input of `ip -batch` that completes the policy routing of the family. */
export function renderPolicyAdd(observed: ObservedFamily, wantRoute: boolean): string {
  const own = ownPolicy(observed);
  const lines: string[] = [];
  if (wantRoute && own.routes === 0) lines.push(`route replace ${localRoute(observed)}`);
  if (own.rules === 0) lines.push(`rule add ${policyRule()}`);
  return joined(lines);
}

/** Renders input of `ip -batch` that removes the policy routing of the family. */
export function renderPolicyRemove(observed: ObservedFamily): string {
  return joined([
    // The rule goes last: without it, a removal that was interrupted would take the route for another program's.
    ...Array.from({ length: ownRoutes(observed) }, () => `route del ${localRoute(observed)}`),
    ...Array.from({ length: ownPolicy(observed).rules }, () => `rule del ${policyRule()}`),
  ]);
}

function renderRemoval(found: ObservedTable): string {
  return section(found.table, [
    ...deletedJumps(found),
    ...found.chains.map((chain) => `-F ${chain}`),
    ...found.chains.map((chain) => `-X ${chain}`),
  ]);
}

function deletedJumps(found: ObservedTable | undefined): readonly string[] {
  return (found?.jumps ?? []).map((jump) => `-D ${jump.chain} ${jump.text}`);
}

function section(table: Table, lines: readonly string[]): string {
  return joined([`*${table}`, ...lines, 'COMMIT']);
}

function policyRule(): string {
  const { mark, mask, priority, table } = POLICY_ROUTE;
  return `fwmark ${hex(mark)}/${hex(mask)} pref ${priority} lookup ${table}`;
}

function hex(value: number): string {
  return `0x${value.toString(16)}`;
}

function localRoute(observed: ObservedFamily): string {
  const everything = observed.family === 4 ? '0.0.0.0/0' : '::/0';
  return `local ${everything} dev lo table ${POLICY_ROUTE.table}`;
}

function joined(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}
