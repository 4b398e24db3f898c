/** The rules of a pod as tables of nftables, `ip istio-ambient-nat` for example. Pure. */
import type { Jump, ObservedTable } from './observed.ts';
import { HOOKS, OWN_CHAINS, TABLES } from './rules.ts';
import type { Family, FamilyRules, OwnChain, Table } from './rules.ts';

/** A table of its own for each family, unlike upstream's `inet`: families come, go and are verified apart from each other. */
const HEADERS = { 4: 'ip', 6: 'ip6' } as const;
const PREFIX = 'istio-ambient-';
const CHAINS = { ISTIO_PRERT: 'istio-prerouting', ISTIO_OUTPUT: 'istio-output' } as const;
/** Base chains jump to ours, as the built-in chains of iptables do. */
const BASES = { ISTIO_PRERT: 'prerouting', ISTIO_OUTPUT: 'output' } as const;
const PRIORITIES = { raw: -300, mangle: -150, nat: -100 } as const;

/** Renders input of `nft -f` that makes our tables of the family exactly so, in one transaction and from any state. */
export function renderNative(expected: FamilyRules, found: readonly ObservedTable[]): string {
  const header = HEADERS[expected.family];
  return TABLES.map((table) => {
    const name = `${header} ${PREFIX}${table}`;
    const rules = expected.rules.filter((rule) => rule.table === table);
    if (rules.length === 0) return renderNativeRemoval(expected.family, ofTable(found, table));
    return joined([
      // The first line makes the second one work where there is no table.
      `add table ${name}`,
      `delete table ${name}`,
      `add table ${name}`,
      ...OWN_CHAINS.flatMap((chain) => [
        `add chain ${name} ${CHAINS[chain]}`,
        `add chain ${name} ${BASES[chain]} { type ${chainType(table, chain)} hook ${BASES[chain]} priority ${PRIORITIES[table]}; policy accept; }`,
        `add rule ${name} ${BASES[chain]} jump ${CHAINS[chain]}`,
      ]),
      ...rules.map((rule) => `add rule ${name} ${CHAINS[rule.chain]} ${rule.nft}`),
    ]);
  }).join('');
}

/** Renders input of `nft -f` that removes these tables. */
export function renderNativeRemoval(family: Family, found: readonly ObservedTable[]): string {
  return joined(found.map(({ table }) => `delete table ${HEADERS[family]} ${PREFIX}${table}`));
}

/** Returns the command that lists the tables of a family, without counts. */
export function nativeList(family: Family): string {
  return `nft -s list ruleset ${HEADERS[family]}`;
}

/**
 * Parses the output of {@link nativeList}. Skips tables of others. A rule of a base chain, or of a chain that is not ours, counts
 * as one of our chain with its place before it, so that a comparison finds it.
 */
export function parseNative(text: string): readonly ObservedTable[] {
  return text.split(/^(?=table )/m).flatMap((section) => {
    const [first = '', ...lines] = section.split('\n').map((line) => line.trim());
    const table = TABLES.find((name) => first.endsWith(` ${PREFIX}${name} {`));
    return table === undefined ? [] : [parseTable(table, lines)];
  });
}

function parseTable(table: Table, lines: readonly string[]): ObservedTable {
  const chains: OwnChain[] = [];
  const rules: { chain: OwnChain; text: string }[] = [];
  const jumps: Jump[] = [];
  let place = '';
  for (const line of lines) {
    if (line === '') continue;
    if (line === '}') {
      place = '';
      continue;
    }
    const opened = /^(.*) \{$/.exec(line)?.[1];
    if (opened !== undefined && place === '') {
      place = opened;
      const declared = OWN_CHAINS.find((chain) => place === `chain ${CHAINS[chain]}`);
      if (declared !== undefined) chains.push(declared);
      continue;
    }
    const own = OWN_CHAINS.find((chain) => place === `chain ${CHAINS[chain]}`);
    const base = OWN_CHAINS.find((chain) => place === `chain ${BASES[chain]}`);
    if (own !== undefined) rules.push({ chain: own, text: line });
    else if (base !== undefined && line === `jump ${CHAINS[base]}`) {
      // Any other rule of the base chain counts as surplus.
      jumps.push({ chain: HOOKS[base], text: `-j ${base}`, first: true });
    } else rules.push({ chain: base ?? 'ISTIO_OUTPUT', text: `${place}: ${line}` });
  }
  return { table, chains, rules, jumps };
}

/** Packets whose mark changes on their way out are routed anew. */
function chainType(table: Table, chain: OwnChain): string {
  if (table === 'nat') return 'nat';
  return table === 'mangle' && chain === 'ISTIO_OUTPUT' ? 'route' : 'filter';
}

function ofTable(found: readonly ObservedTable[], table: Table): readonly ObservedTable[] {
  return found.filter((one) => one.table === table);
}

function joined(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}
