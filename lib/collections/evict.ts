/** Removes the oldest entries of a map, in the order they were set, until at most `limit` are left. */
export function evictOldest(map: Map<string, unknown>, limit: number): void {
  for (const key of map.keys()) {
    if (map.size <= limit) return;
    map.delete(key);
  }
}
