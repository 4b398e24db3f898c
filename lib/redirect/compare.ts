/** Compares the present redirection with the expected one. Pure. */
import type { ObservedFamily, ObservedTable } from './observed.ts';
import { HOOKS, OWN_CHAINS, POLICY_ROUTE, TABLES } from './rules.ts';
import type { FamilyRules, OwnChain, Table } from './rules.ts';

/**
 * Returns one phrase per difference, none when all is right. `wantRoute` is false where the family has no loopback to route to.
 */
export function differences(
  expected: FamilyRules,
  observed: ObservedFamily,
  wantRoute: boolean,
): readonly string[] {
  return [
    ...TABLES.flatMap((table) => tableDifferences(expected, observed, table)),
    ...policyDifferences(observed, wantRoute),
  ].map((difference) => `IPv${expected.family} ${difference}`);
}

/**
 * Returns whether traffic is redirected, and replies return, exactly as expected. The table `raw` does not count: it separates
 * connections in conntrack but does not decide which ones reach the proxy.
 */
export function redirects(
  expected: FamilyRules,
  observed: ObservedFamily,
  wantRoute: boolean,
): boolean {
  const rules = expected.rules.filter((rule) => rule.table !== 'raw');
  const tables = observed.tables.filter((found) => found.table !== 'raw');
  return differences({ ...expected, rules }, { ...observed, tables }, wantRoute).length === 0;
}

/** Returns the remains of the redirection; empty when nothing is left. */
export function remains(observed: ObservedFamily): readonly string[] {
  const chains = observed.tables.map((table) => `table ${table.table}`);
  if (ownPolicy(observed).rules > 0) chains.push('policy rule');
  if (ownRoutes(observed) > 0) chains.push(`route in table ${POLICY_ROUTE.table}`);
  return chains.map((what) => `IPv${observed.family} ${what}`);
}

/** Counts our policy rules, and the routes that serve them, whoever made those. */
export function ownPolicy(observed: ObservedFamily): { rules: number; routes: number } {
  const rules = observed.policy.rules.filter(isOwnRule);
  const routes = observed.policy.routes.filter((route) => route.local && route.prefixLength === 0);
  return { rules: rules.length, routes: routes.length };
}

/**
 * Counts the routes that a removal takes away. The kernel's recipe for TPROXY has the same route in the same table: it counts as
 * ours only beside our policy rule or our chains, and not while another rule looks its table up.
 */
export function ownRoutes(observed: ObservedFamily): number {
  const { rules, routes } = ownPolicy(observed);
  const used = observed.policy.rules.some(
    (rule) => rule.table === POLICY_ROUTE.table && !isOwnRule(rule),
  );
  return used || (rules === 0 && observed.tables.length === 0) ? 0 : routes;
}

function isOwnRule(found: ObservedFamily['policy']['rules'][number]): boolean {
  const { priority, mark, mask, table } = POLICY_ROUTE;
  return (
    found.priority === priority &&
    found.mark === mark &&
    found.mask === mask &&
    found.table === table
  );
}

function tableDifferences(
  expected: FamilyRules,
  observed: ObservedFamily,
  table: Table,
): readonly string[] {
  const rules = expected.rules.filter((rule) => rule.table === table);
  const found = observed.tables.find((candidate) => candidate.table === table);
  if (rules.length === 0) return found === undefined ? [] : [`table ${table} has surplus chains`];
  if (found === undefined) return [`table ${table} has no chains`];
  return OWN_CHAINS.flatMap((chain) => [
    ...chainDifferences(
      `${table} ${chain}`,
      rules.filter((rule) => rule.chain === chain).map((rule) => rule.text),
      found.rules.filter((rule) => rule.chain === chain).map((rule) => rule.text),
    ),
    ...jumpDifferences(table, chain, found),
  ]);
}

function chainDifferences(
  where: string,
  expected: readonly string[],
  found: readonly string[],
): readonly string[] {
  const missing = expected.filter((text) => !found.includes(text));
  const surplus = found.filter((text) => !expected.includes(text));
  const named = [
    ...missing.map((text) => `${where} lacks "${text}"`),
    ...surplus.map((text) => `${where} has surplus "${text}"`),
  ];
  const same =
    expected.length === found.length && expected.every((text, index) => text === found[index]);
  return named.length > 0 || same ? named : [`${where} has its rules in another order or twice`];
}

function jumpDifferences(table: Table, chain: OwnChain, found: ObservedTable): readonly string[] {
  const jumps = found.jumps.filter((jump) => / -[jg] (\S+)/.exec(` ${jump.text}`)?.[1] === chain);
  const exact = jumps.filter((jump) => jump.chain === HOOKS[chain] && jump.text === `-j ${chain}`);
  if (jumps.length !== 1 || exact.length !== 1) {
    return [`${table} ${HOOKS[chain]} must lead to ${chain} once`];
  }
  // A rule before it may decide a connection, which then bypasses the proxy.
  if (table !== 'nat' || jumps[0]?.first === true) return [];
  return [`${table} ${HOOKS[chain]} has rules of others before ${chain}`];
}

function policyDifferences(observed: ObservedFamily, wantRoute: boolean): readonly string[] {
  const { rules, routes } = ownPolicy(observed);
  const result: string[] = [];
  if (rules !== 1) result.push(`has ${rules} policy rules for marked replies`);
  if (wantRoute && routes === 0) result.push(`has no local route in table ${POLICY_ROUTE.table}`);
  return result;
}
