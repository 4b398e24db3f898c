/** Names of record types by number (IANA), for logs and metrics. The set is closed, so labels stay bounded. */
const NAMES: Readonly<Record<number, string>> = {
  1: 'a',
  2: 'ns',
  5: 'cname',
  6: 'soa',
  10: 'null',
  12: 'ptr',
  13: 'hinfo',
  15: 'mx',
  16: 'txt',
  24: 'sig',
  25: 'key',
  28: 'aaaa',
  33: 'srv',
  35: 'naptr',
  37: 'cert',
  43: 'ds',
  44: 'sshfp',
  46: 'rrsig',
  47: 'nsec',
  48: 'dnskey',
  50: 'nsec3',
  51: 'nsec3param',
  52: 'tlsa',
  59: 'cds',
  60: 'cdnskey',
  61: 'openpgpkey',
  62: 'csync',
  64: 'svcb',
  65: 'https',
  251: 'ixfr',
  252: 'axfr',
  255: 'any',
  257: 'caa',
};

/** The name of a record type in lower case; `unknown` for one without. */
export function typeName(type: number): string {
  return NAMES[type] ?? 'unknown';
}
