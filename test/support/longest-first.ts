/**
 * Sorts test files for AVA: those whose path contains one of `parts` come first, in the order of `parts`. They take longest; at
 * the end no processor waits for one of them.
 */
export function longestFirst(parts: readonly string[]): (one: string, other: string) => number {
  const place = (file: string): number => {
    const found = parts.findIndex((part) => file.includes(part));
    return found === -1 ? parts.length : found;
  };
  return (one, other) => place(one) - place(other) || (one < other ? -1 : 1);
}
