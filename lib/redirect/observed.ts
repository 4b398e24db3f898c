/** Reads the present redirection of a pod's namespace. Pure. */
import type { PolicyRouting } from '../linux/netns.ts';
import { OWN_CHAINS, TABLES } from './rules.ts';
import type { Family, OwnChain, Table } from './rules.ts';

/** Our part of one table. */
export interface ObservedTable {
  readonly table: Table;
  /** Our chains that exist. */
  readonly chains: readonly OwnChain[];
  /** Rules of our chains, in order. */
  readonly rules: readonly { readonly chain: OwnChain; readonly text: string }[];
  /** Rules of other chains that lead to one of ours. */
  readonly jumps: readonly Jump[];
}

/** A rule that leads to one of our chains. */
export interface Jump {
  readonly chain: string;
  readonly text: string;
  /** Whether it is the first rule of its chain. */
  readonly first: boolean;
}

/** One family of a namespace. `tables` holds only tables with our chains. */
export interface ObservedFamily {
  readonly family: Family;
  readonly tables: readonly ObservedTable[];
  readonly policy: PolicyRouting;
}

/** Parses the output of `iptables-save` (or its IPv6 or legacy twin). Skips rules of others. */
export function parseSave(text: string): readonly ObservedTable[] {
  const tables: ObservedTable[] = [];
  for (const section of text.split(/^(?=\*)/m)) {
    const lines = section.split('\n').map((line) => line.trim());
    const table = TABLES.find((name) => lines[0] === `*${name}`);
    if (table === undefined) continue;
    const observed = parseTable(table, lines);
    if (observed.chains.length > 0 || observed.jumps.length > 0) tables.push(observed);
  }
  return tables;
}

function parseTable(table: Table, lines: readonly string[]): ObservedTable {
  const chains: OwnChain[] = [];
  const rules: { chain: OwnChain; text: string }[] = [];
  const jumps: Jump[] = [];
  const begun = new Set<string>();
  for (const line of lines) {
    const declared = ownChain(/^:(\S+) /.exec(line)?.[1]);
    if (declared !== null) chains.push(declared);
    const rule = /^-A (\S+) (.*)$/.exec(line);
    if (rule === null) continue;
    const [, chain = '', text = ''] = rule;
    const own = ownChain(chain);
    if (own !== null) rules.push({ chain: own, text });
    else if (ownChain(/-[jg] (\S+)/.exec(text)?.[1]) !== null) {
      jumps.push({ chain, text, first: !begun.has(chain) });
    }
    begun.add(chain);
  }
  return { table, chains, rules, jumps };
}

function ownChain(name: string | undefined): OwnChain | null {
  return OWN_CHAINS.find((chain) => chain === name) ?? null;
}
