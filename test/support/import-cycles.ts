/** Finds import cycles, those of types among them. Pure. */

/**
 * The groups of files that import each other, directly or over others: the strongly connected components of more than one
 * file, and files that import themselves. Each group is sorted, as are the groups. `imports` maps each file to the files it
 * imports; targets that are no key are left out. After Tarjan.
 */
export function importCycles(
  imports: ReadonlyMap<string, readonly string[]>,
): readonly (readonly string[])[] {
  const order = new Map<string, number>();
  const open: string[] = [];
  const groups: string[][] = [];
  const visit = (file: string): number => {
    const index = order.size;
    order.set(file, index);
    let low = index;
    open.push(file);
    for (const target of imports.get(file) ?? []) {
      if (!imports.has(target)) continue;
      if (!order.has(target)) low = Math.min(low, visit(target));
      else if (open.includes(target)) low = Math.min(low, order.get(target) ?? low);
    }
    if (low === index) {
      const group = open.splice(open.indexOf(file));
      if (group.length > 1 || imports.get(file)?.includes(file) === true) groups.push(group.sort());
    }
    return low;
  };
  for (const file of imports.keys()) if (!order.has(file)) visit(file);
  return groups.sort((left, right) => ((left[0] ?? '') < (right[0] ?? '') ? -1 : 1));
}
