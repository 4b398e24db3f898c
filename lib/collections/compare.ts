/** Orders texts by their code units, for `sort`; unlike `localeCompare` it gives the same order everywhere. */
export function compareText(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
