/** Tells comments, blank lines and imports from code. It reads formatted sources, in which a comment begins its line. */

/**
 * Counts the code lines of one source file.
 * A comment behind code on the same line does not change the count. An import that spans several lines is left out whole.
 */
export function codeLines(path: string, text: string): number {
  const lineComment = path.endsWith('.lua') ? '--' : '//';
  let count = 0;
  let inside: 'block' | 'import' | null = null;
  for (const line of text.split('\n').map((raw) => raw.trim())) {
    if (inside === 'block') {
      if (line.includes('*/')) inside = null;
    } else if (inside === 'import') {
      if (line.endsWith(';')) inside = null;
    } else if (line.startsWith('/*')) {
      if (!line.includes('*/')) inside = 'block';
    } else if (/^import\b(?!\()/.test(line)) {
      if (!line.endsWith(';')) inside = 'import';
    } else if (line !== '' && !line.startsWith(lineComment) && !line.startsWith('#include')) {
      count += 1;
    }
  }
  return count;
}
