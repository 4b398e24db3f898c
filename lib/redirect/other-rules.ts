/** Scripts that remove the rules which an agent with another interface to the kernel left in a namespace. Pure. */
import type { Flavour } from './flavour.ts';
import { LOCK_WAIT_SECONDS } from './limits.ts';
import { OWN_CHAINS, TABLES } from './rules.ts';

const CHAINS = OWN_CHAINS.join('|');

/**
 * Returns a script that removes the redirection except that of the flavour; policy routing, which all flavours share, stays. Run
 * it once the own rules stand, so that nothing leaks in between.
 */
export function removeOtherRules(flavour: Flavour): string {
  const legacy = iptablesRemoval('legacy');
  switch (flavour) {
    case 'native':
      // Upstream's native tables are of the family inet.
      return `${nativeRemoval('inet')}${iptablesRemoval('nft')}${legacy}`;
    case 'nft':
      return `${nativeRemoval('inet|ip|ip6')}${legacy}`;
    case 'legacy':
      return `${nativeRemoval('inet|ip|ip6')}${iptablesRemoval('nft')}`;
    case 'plain':
      // The programs may be either of the two.
      return nativeRemoval('inet|ip|ip6');
  }
}

function nativeRemoval(families: string): string {
  return `if command -v nft >/dev/null; then
  others=$(nft list tables 2>/dev/null | sed -n -E 's/^table ((${families}) istio-ambient-(${TABLES.join('|')}))$/delete table \\1/p')
  [ -z "$others" ] || printf '%s\\n' "$others" | nft -f -
fi
`;
}

/** Reading the kernel's own lists first spares a process, and loads no module. */
function iptablesRemoval(flavour: 'nft' | 'legacy'): string {
  const unused =
    flavour === 'nft'
      ? `! nft list chains 2>/dev/null | grep -qE 'chain (${CHAINS}) '`
      : '[ -z "$(cat /proc/net/$names 2>/dev/null)" ]';
  return `for pair in iptables:ip_tables_names ip6tables:ip6_tables_names; do
  program=\${pair%:*}-${flavour} names=\${pair#*:}
  if ${unused}; then continue; fi
  command -v $program-save >/dev/null || continue
  for table in ${TABLES.join(' ')}; do
    rules=$($program-save -t $table 2>/dev/null) || continue
    printf '%s\\n' "$rules" | grep -qE '^:(${CHAINS}) ' || continue
    {
      echo "*$table"
      printf '%s\\n' "$rules" | sed -n -E '/^-A (${CHAINS}) /d; s/^-A (.* -[jg] (${CHAINS}))$/-D \\1/p'
      printf '%s\\n' "$rules" | sed -n -E 's/^:(${CHAINS}) .*/-F \\1/p'
      printf '%s\\n' "$rules" | sed -n -E 's/^:(${CHAINS}) .*/-X \\1/p'
      echo COMMIT
    } | $program-restore --noflush -w ${LOCK_WAIT_SECONDS}
  done
done
`;
}
